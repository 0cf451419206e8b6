"""Experiments of `bench.training.reproduce`: claims of the papers in small.

Start with `experiment.Experiment`, what the command asks of an experiment. There are four: `compression` (RepCONC
and others, by `coded_runs`), `pseudo_queries`, `first_vectors` and `aggregation` (by `trained_representation`).
`small_run` trains, `evaluation` encodes a collection, `ranks` judges a search, and `bootstrap` compares two.

May import: `bench.training.collections`, `bench.data`, `bench.harness`, `quarry`.
"""
