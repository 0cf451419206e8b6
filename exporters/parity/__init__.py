"""Comparison of an exported model with its source.

`encoder` and `reranker` compare a variant with fp32, `retrieval` measures its effect on a ranking,
`encoder_reference` and
`reranker_reference` record results in the bundle so that it can be checked later without the checkpoint, and
`sample_texts` supplies texts.
"""
