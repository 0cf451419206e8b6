"""Centroid vectors of a segment and what finds them.

`centroids` stores them as int8 or float16 rows, `inverted_lists` their PQ codes grouped into IVF lists,
`quantizer` the coarse centroids, codebooks and rotation that codes refer to, `quantization_error` how well a
quantizer fits, `search_setting` the calibrated settings of searches with it, and `hnsw_graph` an optional graph
over the rows.

May import: `quarry.formats.container`.
"""
