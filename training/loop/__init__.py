"""The training loop that encoders and rerankers share.

Start with `trainer.Trainer`: batch, gradient, an optimizer step (`optimizer`). What it trains is a `learner`:
`encoder_learner` has teachers, vectors, an objective and `gradient_cache` (large batches in little memory),
`reranker_learner` scores pairs. `mining` searches for hard negatives. `checkpoints` keeps the state of a run,
which resumes with the same result, `validation` measures nDCG@10 on held-out queries, `history` records and plots
every step.

Batch, mined negatives, random draws and learning rate of a step depend on the seed and on the step's number, never
on what ran before; a checkpoint holds weights and optimizer. Vectors and loss of an objective are separate,
because gradients are cached between them: large batches fit in the memory of a chunk.
"""
