"""Comparison with other search libraries on the same vectors and queries.

Start with `command`; `registry` lists the libraries and settings, `protocol` defines an adapter, `adapters` has
one for each library, `probe` runs an adapter in the library's own environment. FEATURES.md compares features.

May import: `bench.data`, `bench.harness`, `quarry`.
"""
