"""Measurements that the engine's defaults were chosen by, one module each.

`representation`, `ivf_switch`, `backends`, `untrained_codes`, `two_stage`, `graph_library`, `hybrid`,
`hybrid_latency`, `lexical` and `filters`; each docstring says what is compared and what was found.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
