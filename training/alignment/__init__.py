"""Alignment: an encoder is trained to give texts the vectors that teachers give them (LEAF, arXiv 2509.12539).

Start with `objective.AlignedObjective`: it wraps an objective of `quarry.training.objectives`. `teacher_vectors`
keeps the teachers' vectors of all texts on disk, `joint_space` makes one target of the vectors of several, and
`preparation` builds what a recipe names.
"""
