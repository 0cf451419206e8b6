"""Representations: the token vectors of a document to its centroid vectors.

Start with `representation`: the protocol and every method (k-means of the pseudo-query paper, contiguous passages,
first-m, mean, [CLS]). `pieces` and `kmeans` hold the two algorithms, `on_device` and `device_kmeans` the same in
torch.

May import: `quarry.engine.encoding`, `quarry.engine.gpu`, `quarry.formats`.
"""
