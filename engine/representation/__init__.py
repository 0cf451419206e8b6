"""Representations: the token vectors of a document to its centroid vectors.

Start with `base`, the protocol; each method is a small frozen dataclass whose fields are the settings that an
index stores: contiguous passages (`pieces`, the default), k-means of the pseudo-query paper (`kmeans`), the first
m token vectors or [CLS] (`first_m`), one mean or pooled vector (`single`). `registry` finds them by name.
`on_device` computes the same in torch.
"""
