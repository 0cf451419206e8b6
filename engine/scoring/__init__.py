"""Exact scores of stored vectors.

Start with `stored_vectors`: scores of a query against the centroids as stored, int8, float16 or codes;
`float16_query` computes approximate scores of float16 centroids. Both use SIMD kernels (`simd`). `aggregation`
computes scores of documents from those of their centroids, `ranking` holds results as columns, `query_vectors`
validates query vectors, and `metric` makes inner products of cosines and distances.
"""
