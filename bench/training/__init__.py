"""Measurements of training: `encoders` compares trained encoders, `reproduce` methods of the papers in small.

Raw results are in ``bench/results/trained_encoders.jsonl`` and ``bench/results/reproduce.jsonl``.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
