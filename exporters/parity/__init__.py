"""Comparison of an exported model with its source.

`encoder` and `reranker` compare a variant with fp32, and record results in the bundle, so that it can be checked
later without the checkpoint. `encoder` measures the effect on a ranking, too. `sample_texts` supplies texts if
none are given.
"""
