"""Lexical search: BM25 over the postings of all segments.

Start with `bm25`: it holds the statistics of the collection and looks up the terms of queries; `segment_scorer`
finds the best documents of one segment from `term_scores` and `encoded_scores`. `close_terms` finds what stands
for mistyped terms, `correction` replaces mistyped words, and `prefixes` finds the documents that have a prefix.
"""
