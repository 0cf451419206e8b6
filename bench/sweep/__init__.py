"""The sweep over settings: quality, speed, memory and size, with plots.

Start with `tradeoff`; `grid` lists the settings, `probe` builds and searches one of them, `faiss_codes` measures
codes that only FAISS has, `prepare_all` encodes a collection; `report`, `plots` and `claims` turn raw results into
tables, plots and statements.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
