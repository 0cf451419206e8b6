"""Quantizes a graph to 8 bits: weights and activations, or weights alone."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.exporters.precision.row_scales import scale_rows

__all__ = ["pack_tables", "quantize_int8", "quantize_tensors", "quantize_weights"]


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


_BLOCK = 32  # weights with one scale
_ZERO = 128  # the point that stands for 0 in uint8
_ACCURACY_LEVEL = 4  # of the operator: int8 products with one scale per block; 0 is several times slower
_LEAST_TABLE = 2**16  # elements; smaller tables save too little
_LEAST_TOKENS = 2**14  # rows of a table that is packed
_CONTRIB = "com.microsoft"

Floats = npt.NDArray[np.float32]


def quantize_weights(model: onnx.ModelProto, keep: str) -> onnx.ModelProto:
    """Return the graph with 8-bit weights: a quarter of the size, close to fp32.

    Products with constant weights become ONNX Runtime's ``MatMulNBits``: blocks of 32 weights share a scale, and
    so do blocks of 32 elements of an activation, so a text's vectors do not depend on its batch. Embedding tables
    have one scale per row.

    Args:
        model: without external data; it is not changed.
        keep: prefix of the names of nodes that stay in fp32.
    """
    quantized = onnx.ModelProto()
    quantized.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in quantized.graph.initializer}
    writer = _Writer({name: tensor for name, tensor in weights.items() if _is_matrix(tensor)})
    for node in quantized.graph.node:
        if not node.name.startswith(keep):
            writer.rewrite(node)
        else:
            writer.nodes.append(node)
    used = {name for node in writer.nodes for name in node.input}
    kept = [tensor for name, tensor in weights.items() if name in used]
    del quantized.graph.node[:], quantized.graph.initializer[:]
    quantized.graph.node.extend(writer.nodes)
    quantized.graph.initializer.extend([*kept, *writer.constants.values()])
    quantized.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    return quantized


def pack_tables(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with the vectors of tokens in 4 bits: an eighth of the size.

    Blocks of 32 weights of a row share a float16 scale, by which the weight of the largest absolute value is -8
    (the layout Q4_0 of GGML): a table that was rounded so before does not change again.

    Args:
        model: without external data; it is not changed. Rows of its tables have a multiple of 32 weights.
    """
    packed = onnx.ModelProto()
    packed.CopyFrom(model)
    tables = {tensor.name: tensor for tensor in packed.graph.initializer if _is_vocabulary(tensor)}
    nodes = []
    for node in packed.graph.node:
        if node.op_type == "Gather" and node.input[0] in tables:
            nodes += _look_up_packed(node, f"{node.input[0]}_scales")
        else:
            nodes.append(node)
    del packed.graph.node[:]
    packed.graph.node.extend(nodes)
    for name, tensor in tables.items():
        codes, scales = _quantize_rows(numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(codes, name))
        packed.graph.initializer.append(numpy_helper.from_array(scales, f"{name}_scales"))
    packed.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    return packed


def _is_vocabulary(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is a table of the vectors of tokens; that of positions is a hundredth of it."""
    return _is_matrix(tensor) and tensor.dims[0] >= _LEAST_TOKENS


def _look_up_packed(node: onnx.NodeProto, scales: str) -> list[onnx.NodeProto]:
    half, output = f"{node.output[0]}_half", node.output[0]
    inputs = [*node.input, scales]
    settings = {"bits": 4, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
    return [
        helper.make_node("GatherBlockQuantized", inputs, [half], name=half, domain=_CONTRIB, **settings),
        helper.make_node("Cast", [half], [output], name=f"{output}_cast", to=TensorProto.FLOAT),
    ]


def _quantize_rows(table: Floats) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float16]]:
    """Return codes (n, dim / 2), two in a byte, and scales (n, dim / 32) of an (n, dim) table."""
    blocks = table.reshape(len(table), -1, _BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    scales = (largest / np.float32(-8)).astype(np.float16)
    steps = np.where(scales == 0, np.float32(1), scales.astype(np.float32))
    codes = np.clip(np.rint(blocks / steps) + 8, 0, 15).astype(np.uint8).reshape(len(table), -1)
    return codes[:, ::2] | codes[:, 1::2] << 4, scales[:, :, 0]


def _is_matrix(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2


class _Writer:
    """Collects the nodes and constants of the new graph."""

    def __init__(self, matrices: dict[str, onnx.TensorProto]) -> None:
        self._matrices = matrices
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def rewrite(self, node: onnx.NodeProto) -> None:
        """Add a node or its replacement."""
        if node.op_type == "MatMul" and node.input[1] in self._matrices:
            self._product(node)
        elif node.op_type == "Gather" and node.input[0] in self._matrices and self._is_large(node):
            self._look_up(node)
        else:
            self.nodes.append(node)

    def _is_large(self, node: onnx.NodeProto) -> bool:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        return axis == 0 and int(np.prod(self._matrices[node.input[0]].dims)) >= _LEAST_TABLE

    def _product(self, node: onnx.NodeProto) -> None:
        name = node.input[1]
        matrix = numpy_helper.to_array(self._matrices[name])
        codes, scales = _quantize_blocks(matrix)
        inputs = [node.input[0], self._constant(f"{name}_q8", codes), self._constant(f"{name}_scales", scales)]
        self.nodes.append(
            helper.make_node(
                "MatMulNBits",
                inputs,
                list(node.output),
                name=f"{node.name}_q8",
                domain=_CONTRIB,
                K=matrix.shape[0],
                N=matrix.shape[1],
                bits=8,
                block_size=_BLOCK,
                accuracy_level=_ACCURACY_LEVEL,
            )
        )

    def _look_up(self, node: onnx.NodeProto) -> None:
        name, output = node.input[0], node.output[0]
        table = numpy_helper.to_array(self._matrices[name])
        scales = _compute_scales(table, axis=1)
        codes = np.rint(table / scales).astype(np.int8)
        parts = [f"{output}_codes", f"{output}_numbers", f"{output}_scales"]
        tables = self._constant(f"{name}_q8", codes), self._constant(f"{name}_scales", scales)
        for source, part in zip(tables, parts[::2], strict=True):
            self.nodes.append(helper.make_node("Gather", [source, node.input[1]], [part], name=part))
        cast = helper.make_node("Cast", parts[:1], [parts[1]], name=parts[1], to=TensorProto.FLOAT)
        self.nodes += [cast, helper.make_node("Mul", parts[1:], [output], name=output)]

    def _constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name


def _compute_scales(values: Floats, axis: int) -> Floats:
    """Return the scales that map each row (axis) to -127..127; 1 if all its elements are 0."""
    largest = np.abs(values).max(axis=axis, keepdims=True)
    return np.where(largest == 0, np.float32(1), largest / np.float32(127))


def _quantize_blocks(matrix: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Return codes (n_out, n_blocks, 32) and scales (n_out, n_blocks) of an (n_in, n_out) matrix."""
    n_in, n_out = matrix.shape
    padded = np.pad(matrix, ((0, -n_in % _BLOCK), (0, 0)))
    blocks = np.ascontiguousarray(padded.T).reshape(n_out, -1, _BLOCK)
    scales = _compute_scales(blocks, axis=2)
    codes = (np.rint(blocks / scales) + _ZERO).astype(np.uint8)
    return codes, scales[:, :, 0]
