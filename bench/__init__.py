"""Measurements of quality, speed and memory; `python -m bench` lists them, bench/README.md has their results.

Start with `__main__`. `harness` records results, `data` reads and prepares collections; `sweep`, `system`,
`training`, `gpu` and `peers` measure. It is not installed with Quarry.
"""
