"""Objectives of training: how token vectors become the vectors of queries and documents, and the losses.

Start with `objective.Objective`, what the training loop needs of an objective. One module each: `single_vector`,
`first_m` (ME-BERT, DE-BERT), `pseudo_queries` (k-means inside the graph) and `passages` (the engine's default).
Each makes the vectors that the engine's representation of the same name makes, as differentiable tensors.
`pooling` makes vectors of token vectors, `scoring` is the engine's aggregation of scores, `losses` are
contrastive loss and distillation, `teachers` gives the scores to distill, and `registry` builds an objective from
a recipe.
"""
