"""The sweep over settings: quality, speed, memory and bytes, with plots.

Start with `tradeoff`; `grid` lists the settings, `probe` builds and searches one of them, `faiss_codes` measures
codes that only FAISS has, `report`, `plots` and `claims` turn raw results into tables, figures and statements.
"""
