"""Measurements of the system and its parts: the main figures, encoding, exporting, committing, merging.

`figures` measures the main figures with `probes`, each in a new process; `encode` compares encoders, `export`
measures exports and starts of bundles, `durability` changes to an index, `serving` a server under load, and
`paper_table` repeats a table of the pseudo-query paper.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
