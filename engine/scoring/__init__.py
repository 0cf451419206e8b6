"""Exact scores of stored vectors.

Start with `stored_vectors`: scores of a query against the centroids as stored, int8 (`int8_query`) or float16
(`float16_query`), with SIMD kernels (`simd`). `aggregation` computes scores of documents from those of their
centroids, `ranking` holds results as columns, and `query_vectors` validates query vectors.

May import: `quarry.formats`.
"""
