"""Exact scores of stored vectors.

Start with `stored_vectors`: scores of a query against the centroids as stored, int8 (`int8_query`) or float16
(`float16_query`), with SIMD kernels (`simd`). `aggregation` turns the scores of centroids into scores of
documents,
`ranking` holds results as columns, `query_vectors` validates query vectors.

May import: `quarry.formats`.
"""
