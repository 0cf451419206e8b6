"""The training loop that encoders and rerankers share.

Start with `trainer.Trainer`: batch, gradient, an optimizer step (`optimizer`). It keeps the state of a run in
checkpoints, from which the run resumes with the same result. What it trains is a `Learner`: `encoder_learner` has
teachers, vectors, an objective and `gradient_cache` (large batches in little memory), `reranker_learner` scores
pairs. `mining` searches for hard negatives, `validation` measures nDCG@10 on held-out queries, `history` records
and plots every step.

Batch, mined negatives, random draws and learning rate of a step depend on the seed and on the step's number, never
on what ran before; a checkpoint holds weights and optimizer. Vectors and loss of an objective are separate,
because gradients are cached between them: large batches fit in the memory of a chunk.
"""
