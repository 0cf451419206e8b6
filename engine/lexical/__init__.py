"""Lexical search: BM25 over the postings of all segments.

Start with `searcher`; `bm25` holds the statistics of the collection, `query` the analyzed query,
and `segment_scorer` scores the documents of one segment.
"""
