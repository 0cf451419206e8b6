"""Quantizes the weights and activations of a graph to int8."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.exporters.precision.row_scales import scale_rows

__all__ = ["quantize_int8", "quantize_tensors"]


def quantize_int8(model: onnx.ModelProto, keep: str) -> onnx.ModelProto:
    """Return the graph with int8 weights: a quarter of the size, two to three times as fast on a CPU.

    Weights have one scale per output channel. Activations are quantized dynamically, in feed-forward layers with
    one scale per token (`quarry.exporters.precision.row_scales`), elsewhere with one scale per tensor, so run one
    text at a time: in a batch, a text's vectors depend on the other texts. Embedding tables have one scale.
    Products of attention scores stay in fp32.

    Weights use 7 of 8 bits: CPUs without VNNI add two products in 16 bits, which full-range weights overflow, and
    an index built on one machine is searched on others.

    Args:
        model: without external data; it is not changed.
        keep: prefix of the names of nodes that stay in fp32.
    """
    return quantize_tensors(scale_rows(model, keep), keep)


def quantize_tensors(model: onnx.ModelProto, keep: str) -> onnx.ModelProto:
    """Return the graph with int8 weights, and one scale per tensor for the activations of all products.

    Args:
        model: without external data; it may be changed.
        keep: see `quantize_int8`.
    """
    kept = [node.name for node in model.graph.node if node.name.startswith(keep)]
    import_onnxruntime()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(prefix="quarry-export-") as folder, _quiet_root_logger(), _errors_in(folder):
        target = Path(folder) / "model.onnx"
        quantize_dynamic(
            model,
            target,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=kept,
        )
        return onnx.load(target)


@contextmanager
def _errors_in(folder: str) -> Iterator[None]:
    """Name the folder in an I/O error, such as a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or folder
        raise


@contextmanager
def _quiet_root_logger() -> Iterator[None]:
    """Suppress the quantizer's advice to pre-process the graph, which it logs to the root logger."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)
