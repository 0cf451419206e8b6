"""Measurements of quality, speed and memory; `python -m bench` lists them, bench/README.md has their results.

Start with `__main__`. `harness` records results, `data` reads and prepares collections; `sweep`, `decisions`,
`system`, `gpu` and `peers` measure; `readme` runs the main figures.

May import: everything in `quarry`; not installed with it.
"""
