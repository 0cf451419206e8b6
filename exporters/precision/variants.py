"""Converts the graph of an encoder or a reranker to a precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import onnx

from quarry.exporters.checkpoint.head import Head
from quarry.exporters.graph.builder import Graph
from quarry.exporters.graph.head import HEAD, Backbone, build_encoder_model
from quarry.exporters.precision.fp16 import convert_to_fp16
from quarry.exporters.precision.int8 import quantize_int8
from quarry.exporters.precision.int8_weights import quantize_weights

__all__ = ["convert_encoder", "convert_reranker"]

_QUANTIZERS: Mapping[str, Callable[[onnx.ModelProto, str], onnx.ModelProto]] = MappingProxyType(
    {"int8": quantize_int8, "int8-weights": quantize_weights}
)


def convert_encoder(backbone: Backbone, head: Head, precision: str) -> onnx.ModelProto:
    """Complete an encoder's graph in a precision; the head always computes in fp32.

    Args:
        backbone: the network; its graph is modified.
        head: the head to add.
        precision: one of `quarry.exporters.export.PRECISIONS`.
    """
    if precision == "fp16":
        return build_encoder_model(_convert_backbone(backbone), head)
    model = build_encoder_model(backbone, head)
    return _QUANTIZERS[precision](model, HEAD) if precision in _QUANTIZERS else model


def convert_reranker(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """Convert a reranker's fp32 graph to a precision."""
    if precision == "fp16":
        return convert_to_fp16(model)
    return _QUANTIZERS[precision](model, HEAD) if precision in _QUANTIZERS else model


def _convert_backbone(backbone: Backbone) -> Backbone:
    shapes: dict[str, list[str | int]] = {backbone.hidden: ["batch", "length", backbone.n_hidden]}
    if backbone.logits:
        shapes[backbone.logits] = ["batch", "length", "words"]
    half = Graph.extend(convert_to_fp16(backbone.graph.model(shapes)), "head_")
    return replace(backbone, graph=half)
