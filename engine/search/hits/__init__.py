"""Hits, which a search returns.

Start with `hits`, the public classes; `hit_builder` makes them from ranked documents, `passages` finds the passage
of a document that matches best, and `hit_tables` converts hits to tables of other libraries.
"""
