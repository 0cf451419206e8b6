"""Centroid vectors of a segment, with the lists, quantizers and graphs to search them.

`centroids` stores them as int8 or float16 rows, `inverted_lists` their PQ codes grouped into IVF lists,
`quantizer` the coarse centroids, codebooks and rotation of these codes, their error and calibrated settings of
searches, and `hnsw_graph` an optional graph over the rows.
"""
