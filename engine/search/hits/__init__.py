"""Hits, which a search returns.

Start with `hits`, the public classes; `hit_builder` makes them from ranked documents, `passages` finds the passage
of a document that matches best, and `hit_tables` converts hits to tables of other libraries.

May import: `quarry.engine.search.retriever` and `quarry.engine.search.searcher`, `quarry.engine.documents`,
`quarry.engine.lexical`, `quarry.engine.scoring`, `quarry.engine.options`.
"""
