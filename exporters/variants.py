"""The precisions that a graph can be exported in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import onnx

from exporters.graph import Graph
from exporters.half import to_half
from exporters.head import Head
from exporters.head_graph import HEAD, Backbone, encoder_model
from exporters.quantize import quantize_int8
from exporters.weight_only import quantize_weights

__all__ = ["encoder_variant", "reranker_variant"]

_QUANTISERS: Mapping[str, Callable[[onnx.ModelProto, str], onnx.ModelProto]] = MappingProxyType(
    {"int8": quantize_int8, "int8-weights": quantize_weights}
)


def encoder_variant(backbone: Backbone, head: Head, precision: str) -> onnx.ModelProto:
    """Finish an encoder's graph in a precision; the head always computes in fp32.

    Args:
        backbone: the network; its graph is used up.
        head: what follows.
        precision: one of `exporters.to_onnx.PRECISIONS`.
    """
    if precision == "fp16":
        return encoder_model(_half(backbone), head)
    model = encoder_model(backbone, head)
    return _QUANTISERS[precision](model, HEAD) if precision in _QUANTISERS else model


def reranker_variant(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """Bring a reranker's fp32 graph into a precision."""
    if precision == "fp16":
        return to_half(model)
    return _QUANTISERS[precision](model, HEAD) if precision in _QUANTISERS else model


def _half(backbone: Backbone) -> Backbone:
    shapes: dict[str, list[str | int]] = {backbone.hidden: ["batch", "length", backbone.n_hidden]}
    if backbone.logits:
        shapes[backbone.logits] = ["batch", "length", "words"]
    half = Graph.extending(to_half(backbone.graph.model(shapes)), "head_")
    return replace(backbone, graph=half)
