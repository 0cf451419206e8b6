"""Comparison with other search libraries on the same vectors and queries.

Start with `command`; `registry` lists the rows, `protocol` defines the interface of adapters, `adapters` has one
for each library, `probe` runs an adapter in the library's environment. `features` tries what docs/choosing.md
says of them.
"""
