"""Precisions of a graph: fp16, int8 and int8 weights.

Start with `variants`; `int8` quantizes weights and activations, `int8_weights` weights alone, `fp16` converts
the network to half precision.
"""
