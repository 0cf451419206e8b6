"""The training loop that all objectives share.

Start with `trainer.Trainer`: batch, teachers, loss, `gradient_cache` (large batches in little memory), an
optimizer step (`optimizer`). `checkpoints` keeps the state of a run so that it resumes with the same result,
`validation` measures nDCG@10 on held-out queries, `history` records and plots every step.

Batch, mined negatives, random draws and learning rate of a step depend on the seed and on the step's number, never
on what ran before; a checkpoint holds weights and optimizer. Vectors and loss of an objective are separate,
because gradients are cached between them: large batches fit in the memory of a chunk.

May import: `quarry.training.data`, `quarry.training.model`, `quarry.training.objectives`, `quarry.engine`,
`quarry.formats`, torch, tqdm; matplotlib in `history`.
"""
