"""The sweep over settings: quality, speed, memory and size, with plots.

Start with `tradeoff`, which lists the settings; `probe` builds and searches one of them; `report`, `plots` and
`comparison` turn raw results into tables and plots.
"""
