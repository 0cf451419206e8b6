"""Quarry as a system that MTEB and BEIR evaluate; start reading at `bench.suites.corpus_index`.

`mteb_search` and `beir_search` need their libraries (extra `suites`); `command` runs both on a collection of this
machine, beside the measure of `bench.data.quality`.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
