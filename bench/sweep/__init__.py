"""The sweep over settings: quality, speed, memory and size, with plots.

Start with `tradeoff`; `grid` lists the settings, `probe` builds and searches one of them; `report`, `plots` and
`comparison` turn raw results into tables and plots.
"""
