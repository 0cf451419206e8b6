"""Runs the ONNX graph of an encoder as calls of torch, for the operators of BERT-like networks and of heads.

When a graph is read, what torch has one call for is replaced: products with biases, attention, and products of
quantized numbers, which become products with dequantized weights. So activations are never quantized, and a text's
vectors do not depend on the others of its batch. Reductions return float32, as norms of vectors can overflow in
half precision. Nothing is read back from the device, so that a run can be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from quarry.engine.process.libraries import requiring
from quarry.formats.errors import BackendUnavailable, CorruptFile

__all__ = ["TorchGraph"]

_Call = Callable[..., Any]
_Attributes = Mapping[str, Any]


@dataclass
class _Node:
    """A node of a graph, or a call of torch that replaces several."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]


class TorchGraph:
    """One graph on a device.

    Args:
        path: the graph, verified by `quarry.formats.bundle.folder.BundleFolder.verify_graph`.
        place: the device.
        kind: dtype of weights and activations: float32, float16 or bfloat16.

    Attributes:
        outputs: names of the outputs.

    Raises:
        BackendUnavailable: onnx is not installed, or the graph has an operator that is not supported.
        CorruptFile: the file is not a graph that can be run.
    """

    def __init__(self, path: Path, place: torch.device, kind: torch.dtype) -> None:
        self._path, self._place, self._kind = path, place, kind
        nodes, constants, self.outputs = _read(path)
        try:
            _Fusion(nodes, constants, self.outputs)
            self._moved: dict[str, Tensor] = {}  # constants on the device
            self._plans = {output: self._plan(output, nodes, constants) for output in self.outputs}
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise CorruptFile(f"the graph cannot be run by torch: {error!r}", path=path) from error

    def __call__(self, output: str, ids: Tensor, mask: Tensor) -> Tensor:
        """Run the graph for one of its outputs.

        Args:
            output: one of `outputs`.
            ids: (batch, length) int64 on the device.
            mask: (batch, length) int64 on the device, 1 for a token and 0 for padding.

        Raises:
            CorruptFile: the graph cannot be run with these inputs.
        """
        values: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": torch.zeros_like(ids),
        }
        try:
            for call, inputs, outputs, ended in self._plans[output]:
                returned = call(*(values[each] if isinstance(each, str) else each for each in inputs))
                values.update(zip(outputs, returned if isinstance(returned, tuple) else (returned,), strict=False))
                for name in ended:
                    values.pop(name, None)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise CorruptFile(f"the graph cannot be run by torch: {error!r}", path=self._path) from error
        result: Tensor = values[output]
        return result

    def _plan(
        self, output: str, nodes: list[_Node], constants: Mapping[str, Tensor]
    ) -> list[tuple[_Call, list[Any], list[str], set[str]]]:
        """Return the calls for an output: function, names or constants, names of results, names not used later."""
        needed, known, chosen = {output}, {"", output, *constants}, []
        for node in reversed(nodes):
            if not needed.isdisjoint(node.outputs):
                needed.update(node.inputs)
                chosen.append((node, {*node.inputs, *node.outputs} - known))
                known |= chosen[-1][1]
        on_host, plan = set[str](), []
        for node, last in reversed(chosen):
            given = [name for name in node.inputs if name and name not in constants]
            is_host = node.op == "Shape" or (on_host.issuperset(given) and node.op in _HOST_OPERATORS)
            on_host.update(node.outputs if is_host else ())
            inputs: list[Any] = [name or None for name in node.inputs]
            for place, name in enumerate(node.inputs):
                if name in constants:
                    stays = is_host or place in _HOST_INPUTS.get(node.op, ())
                    inputs[place] = constants[name] if stays else self._move(name, constants[name])
            plan.append((self._make(node), inputs, node.outputs, last - on_host))
        return plan

    def _move(self, name: str, values: Tensor) -> Tensor:
        """Return a constant on the device, where it is once for all outputs."""
        if name not in self._moved:
            if values.is_floating_point():  # numbers that stand for infinity stay finite
                limit = torch.finfo(self._kind).max
                values = values.clamp(-limit, limit).to(self._kind)
            self._moved[name] = values.to(self._place)
        return self._moved[name]

    def _make(self, node: _Node) -> _Call:
        """Return the function that computes a node."""
        attributes = {**node.attributes, "place": self._place}
        if node.op == "Cast":
            attributes["to"] = _TYPES.get(int(attributes["to"]), self._kind)
        return partial(_OPERATORS[node.op], attributes)


def _read(path: Path) -> tuple[list[_Node], dict[str, Tensor], list[str]]:
    """Return the nodes, the constants on the host, and the names of the outputs of a graph."""
    with requiring("the torch runtime reads graphs with onnx", "onnx", path):
        import onnx
    model = onnx.load(path)
    graph = model.graph
    constants = {each.name: _to_torch(onnx.numpy_helper.to_array(each)) for each in graph.initializer}
    unknown = {node.op_type for node in graph.node} - {*_OPERATORS, *_FUSED}
    if unknown:
        raise BackendUnavailable("the torch runtime lacks operators of the graph", path=path, actual=unknown)
    nodes = [
        _Node(
            node.op_type,
            list(node.input),
            list(node.output),
            {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute},
        )
        for node in graph.node
    ]
    return nodes, constants, [each.name for each in graph.output]


def _to_torch(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else array.dtype))


class _Fusion:
    """Replaces nodes of a graph in place; new constants are added to `constants`.

    The last of several nodes becomes the one that replaces them, so that the order stays right. The others are not
    used any more, unless by nodes outside of the pattern.
    """

    def __init__(self, nodes: list[_Node], constants: dict[str, Tensor], outputs: Sequence[str]) -> None:
        self._constants = constants
        self._makers = {name: node for node in nodes for name in node.outputs}
        self._users: dict[str, list[_Node]] = {}
        for node in [*nodes, _Node("Output", list(outputs), [], {})]:
            for name in node.inputs:
                self._users.setdefault(name, []).append(node)
        for replace in (self._dequantize, self._add_bias, self._attend):
            for node in nodes:
                replace(node)

    def _dequantize(self, node: _Node) -> None:
        """Replace a product of quantized numbers, and rows that are scaled before and after it."""
        if node.op != "MatMulInteger":
            return
        rounded, cast = self._makers[node.inputs[0]], self._only_user(node, "Cast")
        last = cast and self._only_user(cast, "Mul")
        if rounded.op != "DynamicQuantizeLinear" or cast is None or last is None:
            raise ValueError(f"a quantized product that is not understood: {node.outputs[0]}")
        (factor,) = (each for each in last.inputs if each not in cast.outputs)
        (scale,) = (each for each in self._makers[factor].inputs if each in self._constants)
        weights, zero = (self._constants[each].float() for each in (node.inputs[1], node.inputs[3]))
        value = rounded.inputs[0]
        divided, again = self._makers.get(value), self._only_user(last, "Mul")
        if divided and divided.op == "Div" and again and divided.inputs[1] in again.inputs:
            value, last = divided.inputs[0], again
        self._replace(last, "MatMul", [value], (weights - zero) * self._constants[scale])

    def _add_bias(self, node: _Node) -> None:
        """Replace a product with constant weights, and the addition of a bias, by a linear layer."""
        weights = self._constants.get(node.inputs[1]) if node.op == "MatMul" else None
        if weights is None or weights.ndim != 2:
            return
        add = self._only_user(node, "Add")
        biases = [each for each in add.inputs if each in self._constants] if add else []
        if add and biases and self._constants[biases[0]].shape == weights.shape[1:]:
            self._replace(add, "Linear", [node.inputs[0], biases[0]], weights.T)
        else:
            self._replace(node, "Linear", [node.inputs[0], ""], weights.T)

    def _attend(self, node: _Node) -> None:
        """Replace softmax(Q K + bias) V, whose scale is in Q, by one call."""
        add = self._only_user(node, "Add") if node.op == "MatMul" else None
        softmax = add and self._only_user(add, "Softmax")
        mixed = softmax and self._only_user(softmax, "MatMul")
        if add and softmax and mixed and softmax.attributes.get("axis", -1) in (-1, 3):
            (bias,) = (each for each in add.inputs if each not in node.outputs)
            mixed.op, mixed.inputs = "Attention", [*node.inputs, mixed.inputs[1], bias]

    def _replace(self, node: _Node, op: str, inputs: list[str], weights: Tensor) -> None:
        """Turn a node into another one, with weights as an additional input."""
        name = f"{node.outputs[0]}.{op}"
        self._constants[name] = weights.contiguous()
        node.op, node.inputs, node.attributes = op, [*inputs, name], {}

    def _only_user(self, node: _Node, op: str) -> _Node | None:
        """Return the only node that uses a result, if it has that operator."""
        users = self._users.get(node.outputs[0], [])
        return users[0] if len(users) == 1 and users[0].op == op else None


def _integers(values: Tensor) -> list[int]:
    """Return the numbers of a tensor on the host."""
    return [int(each) for each in values.reshape(-1)]


def _linear(_: _Attributes, values: Tensor, biases: Tensor | None, weights: Tensor) -> Tensor:
    return functional.linear(values.to(weights.dtype), weights, biases)


def _attention(_: _Attributes, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    keys, added = key.transpose(-1, -2), bias.to(query.dtype)
    return functional.scaled_dot_product_attention(query, keys, value, attn_mask=added, scale=1.0)


def _layer_norm(attributes: _Attributes, values: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    return functional.layer_norm(
        values.to(weights.dtype), weights.shape, weights, biases, float(attributes["epsilon"])
    )


def _slice(_: _Attributes, values: Tensor, starts: Tensor, ends: Tensor, axes: Tensor) -> Tensor:
    cuts = [slice(None)] * values.ndim
    for axis, start, end in zip(*map(_integers, (axes, starts, ends)), strict=True):
        cuts[axis] = slice(start, end)
    return values[tuple(cuts)]


def _reshape(_: _Attributes, values: Tensor, shape: Tensor) -> Tensor:
    return values.reshape([size or values.shape[axis] for axis, size in enumerate(_integers(shape))])


def _gather(_: _Attributes, values: Tensor, places: Tensor) -> Tensor:
    return (
        values[places] if values.ndim != 2 else values.index_select(0, places.reshape(-1)).view(*places.shape, -1)
    )


def _gather_packed(_: _Attributes, codes: Tensor, places: Tensor, scales: Tensor) -> Tensor:
    """Rows of numbers of 4 bits, two in a byte, in blocks with one scale (`quarry.exporters.precision.int8`)."""
    rows, steps = (values.index_select(0, places.reshape(-1)) for values in (codes, scales))
    numbers = torch.stack((rows & 15, rows >> 4), -1).view(*steps.shape, -1).to(steps.dtype) - 8
    return (numbers * steps.unsqueeze(-1)).view(*places.shape, -1)


def _reduce(how: _Call, attributes: _Attributes, values: Tensor, axes: Tensor) -> Tensor:
    wide = values.float() if values.is_floating_point() else values
    reduced: Tensor = how(wide, dim=_integers(axes), keepdim=bool(attributes.get("keepdims", 1)))
    return reduced


def _pad(_: _Attributes, values: Tensor, pads: Tensor, value: Tensor) -> Tensor:
    sizes, n = _integers(pads), values.ndim
    pairs = [size for axis in reversed(range(n)) for size in (sizes[axis], sizes[n + axis])]
    return functional.pad(values, pairs, value=float(value))


def _scatter(attributes: _Attributes, values: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    if attributes.get("reduction") != b"max":
        raise ValueError("ScatterElements without the maximum")
    return values.scatter_reduce(int(attributes["axis"]), places, updates.to(values.dtype), "amax")


def _dequantize(_: _Attributes, values: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return (values.to(scale.dtype) - zero.to(scale.dtype)) * scale


_PLAIN: Mapping[str, _Call] = {  # without attributes
    "Abs": torch.abs,
    "Add": torch.add,
    "CumSum": lambda values, axis: values.cumsum(int(axis)),
    "Div": torch.div,
    "Equal": torch.eq,
    "Expand": lambda values, shape: values.expand(_integers(shape)),
    "Greater": torch.gt,
    "Identity": lambda values: values,
    "MatMul": torch.matmul,
    "Max": torch.maximum,
    "Mod": torch.remainder,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Relu": torch.relu,
    "Squeeze": lambda values, axes: values.squeeze(tuple(_integers(axes))),
    "Sub": torch.sub,
    "Tanh": torch.tanh,
    "Unsqueeze": lambda values, axes: reduce(torch.unsqueeze, sorted(_integers(axes)), values),
    "Where": torch.where,
}
_OPERATORS: Mapping[str, _Call] = {
    **{op: partial(lambda call, _, *values: call(*values), call) for op, call in _PLAIN.items()},
    "Attention": _attention,
    "Cast": lambda attributes, values: values.to(attributes["to"]),
    "Concat": lambda attributes, *values: torch.cat(values, int(attributes["axis"])),
    "DequantizeLinear": _dequantize,
    "Gather": _gather,
    "GatherBlockQuantized": _gather_packed,
    "Gelu": lambda attributes, values: functional.gelu(
        values, approximate=attributes.get("approximate", b"none").decode()
    ),
    "LayerNormalization": _layer_norm,
    "Linear": _linear,
    "Pad": _pad,
    "Range": lambda attributes, *bounds: torch.arange(*map(int, bounds), device=attributes["place"]),
    "ReduceL2": partial(_reduce, torch.linalg.vector_norm),
    "ReduceMax": partial(_reduce, torch.amax),
    "ReduceSum": partial(_reduce, torch.sum),
    "Reshape": _reshape,
    "ScatterElements": _scatter,
    "Shape": lambda attributes, values: torch.tensor(values.shape[attributes["start"] : attributes["end"]]),
    "Slice": _slice,
    "Softmax": lambda attributes, values: torch.softmax(values, int(attributes["axis"])),
    "Split": lambda attributes, values: values.chunk(int(attributes["num_outputs"]), int(attributes["axis"])),
    "Transpose": lambda attributes, values: values.permute(*attributes["perm"]),
}
"""Operators of the exporter's graphs, and those of `_Fusion`, with their attributes as the first argument."""
_FUSED = frozenset({"DynamicQuantizeLinear", "MatMulInteger"})
"""Operators that are replaced."""
_TYPES = {6: torch.int32, 7: torch.int64, 9: torch.bool}
"""Numbers of ONNX's types that are not floats."""
_HOST_INPUTS = {
    **dict.fromkeys(("CumSum", "Expand", "Pad", "Reshape", "Squeeze", "Unsqueeze"), (1, 2)),
    **dict.fromkeys(("ReduceL2", "ReduceMax", "ReduceSum"), (1,)),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3),
}
"""Places of inputs that say what to do, such as shapes and axes; they stay on the host."""
_HOST_OPERATORS = frozenset({"Concat", "Squeeze"})
"""Operators that compute such inputs from shapes."""
