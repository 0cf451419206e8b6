"""Hits, which a search returns.

Start with `hits`, the public classes; `hit_builder` makes them from ranked documents, and `hit_tables` converts
hits to tables of other libraries.
"""
