"""Comparison of an exported model with its source.

`encoder` and `reranker` compare a variant with fp32, and record results in the bundle, so that it can be checked
later without the checkpoint; `retrieval` measures its effect on a ranking. `sample_texts` supplies texts if none
are given.
"""
