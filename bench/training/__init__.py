"""Measurements of training: `encoders` compares trained encoders with the bundled one.

Raw results are in ``bench/results/trained_encoders.jsonl``.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
