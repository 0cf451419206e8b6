"""Lexical search: BM25 over the postings of all segments.

Start with `bm25`: it holds the statistics of the collection and looks up the terms of queries; `segment_scorer`
finds the best documents of one segment by `term_scores`. `close_terms` finds what stands for mistyped terms, and
`prefixes` finds the documents that have a prefix.
"""
