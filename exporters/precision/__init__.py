"""Precisions of a graph: fp16, int8 and int8 weights.

Start with `variants`, which converts an encoder or a reranker to a precision, such as fp16. `int8` quantizes
weights, or weights and activations, for which `row_scales` prepares feed-forward layers.
"""
