"""Precisions of a graph: fp16, int8 and int8 weights.

Start with `variants`, which converts an encoder or a reranker to a precision. `int8` quantizes weights and
activations, for which `row_scales` prepares feed-forward layers, `int8_weights` quantizes only weights, and `fp16`
converts the network to half precision.
"""
