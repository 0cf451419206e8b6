"""Objectives of training: how token vectors become the vectors of queries and documents, and the losses.

Start with `objective.Objective`, what the training loop needs of an objective. `first_m` has those of one vector
and of the first token vectors (ME-BERT, DE-BERT); others have a module each: `pseudo_queries` (k-means inside the
graph) and `passages` (the engine's default). Each makes the vectors that the engine's representation of the same
name makes, as differentiable tensors. `ranking` is what they have in common, `scoring` the engine's aggregation of
scores, `losses` are contrastive loss and distillation, `teachers` gives the scores to distill, and `registry`
builds an objective from a recipe.
"""
