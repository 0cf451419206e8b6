"""Converts the graph of an encoder or a reranker to a precision; fp16 is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from quarry.exporters.checkpoint.head import Head
from quarry.exporters.graph.builder import Graph
from quarry.exporters.graph.head import HEAD, Backbone, build_encoder_model
from quarry.exporters.precision.int8 import pack_tables, quantize_int8, quantize_weights
from quarry.formats.errors import InvalidSetting

__all__ = ["convert_encoder", "convert_reranker", "convert_to_fp16"]

_LARGEST = 65504.0  # of float16


def convert_to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph in float16, for GPUs; its outputs are cast back to float32.

    Constants outside float16's range are clipped. CPUs can run the graph too, with casts.

    Raises:
        InvalidSetting: the graph has nodes with subgraphs (conditions, loops).
    """
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = half.graph
    for tensor in graph.initializer:
        _convert_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            _convert_attribute(node, attribute)
    names = {value.name: f"{value.name}_half" for value in graph.output}
    for node in graph.node:
        for names_of in (node.input, node.output):
            names_of[:] = [names.get(name, name) for name in names_of]
    for name, inner in names.items():
        graph.node.append(helper.make_node("Cast", [inner], [name], name=f"{name}_cast", to=TensorProto.FLOAT))
    del graph.value_info[:]
    return half


def _convert_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        values = np.clip(numpy_helper.to_array(tensor), -_LARGEST, _LARGEST).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _convert_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    if attribute.HasField("g") or attribute.graphs:
        raise InvalidSetting(
            "a graph with subgraphs cannot be converted to fp16", actual=f"{node.op_type} {node.name!r}"
        )
    if attribute.HasField("t"):
        _convert_tensor(attribute.t)
    elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
        attribute.i = TensorProto.FLOAT16
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        listed = [attribute.f] if attribute.name == "value_float" else list(attribute.floats)
        shape = () if attribute.name == "value_float" else (len(listed),)
        tensor = numpy_helper.from_array(np.array(listed, np.float32).reshape(shape))
        _convert_tensor(tensor)
        attribute.CopyFrom(helper.make_attribute("value", tensor))


_QUANTIZERS: Mapping[str, Callable[[onnx.ModelProto, str], onnx.ModelProto]] = MappingProxyType(
    {"int8": quantize_int8, "int8-weights": quantize_weights}
)


def convert_encoder(
    backbone: Backbone, head: Head, precision: str, packed_tables: bool = False
) -> onnx.ModelProto:
    """Complete an encoder's graph in a precision; the head always computes in fp32.

    Args:
        backbone: the network; its graph is modified.
        head: the head to add.
        precision: one of `quarry.exporters.export.PRECISIONS`.
        packed_tables: whether vectors of tokens have 4 bits (fp32, int8, int8-weights).
    """
    if precision == "fp16":
        return build_encoder_model(_convert_backbone(backbone), head)
    model = build_encoder_model(backbone, head)
    model = pack_tables(model) if packed_tables else model
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
