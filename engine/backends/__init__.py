"""Stage 1 of dense search: candidate documents of one segment, by backend.

Start with `protocol`, the interface; `registry` finds a backend by name, `selection` chooses one for a segment.
`exact` is plain NumPy and the oracle of the tests, `scan` a SIMD scan, `cpu_faiss` inverted lists of PQ codes
(`probing` chooses how many are read), `hnsw` a graph, `gpu` torch on a CUDA device.
"""
