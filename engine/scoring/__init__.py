"""Exact scores of stored vectors.

Start with `stored_vectors`: scores of a query against the centroids as stored, int8, float16 or codes,
by SIMD kernels (`simd`). `aggregation`
computes scores of documents from those of their centroids, `ranking` holds results as columns, `query_vectors`
validates query vectors, and `metric` makes inner products of cosines and distances.
"""
