"""Measurements behind the engine's defaults, one module each.

`representation`, `ivf_switch`, `backends`, `two_stage`, `hybrid`, `hybrid_latency`, `lexical` and `filters`; each
docstring says what is compared.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
