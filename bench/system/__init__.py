"""Measurements of parts of the system: encoding, exporting, committing, merging, starting.

`encode` compares encoders, `export` and `encoder_start` measure bundles, `durability` and `merge_parts` measure
changes to an index, `paper_table` repeats a table of the pseudo-query paper.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
