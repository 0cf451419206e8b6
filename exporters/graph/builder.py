"""Assembles ONNX graphs node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["OPSET", "Graph"]

OPSET = 20  # of ONNX
_IR_VERSION = 10
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Graph:
    """Collects nodes and constants; every method returns the name of the tensor it added.

    Args:
        prefix: the prefix of every generated name.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._prefix = prefix
        self._inputs: tuple[str, ...] = _INPUTS
        self._opsets = [helper.make_opsetid("", OPSET)]

    @classmethod
    def extend(cls, model: onnx.ModelProto, prefix: str) -> Graph:
        """Create a graph with the nodes of a model, whose outputs become inner tensors of the same name.

        Args:
            model: its inputs are some of ``input_ids``, ``attention_mask``, ``token_type_ids``; no external data.
            prefix: the prefix of every generated name; no name in the model begins with it.
        """
        graph = cls(prefix)
        graph.nodes = list(model.graph.node)
        graph.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        given = {value.name for value in model.graph.input}
        graph._inputs = tuple(name for name in _INPUTS if name in given)
        graph._opsets = list(model.opset_import)
        return graph

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attributes: object) -> str:
        """Add a node with one output; `name` is used without the prefix."""
        output = name or f"{self._prefix}{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def split(self, value: str, n_parts: int) -> list[str]:
        """Split a tensor into equal parts along its last axis."""
        outputs = [f"{self._prefix}split_{len(self.nodes)}_{part}" for part in range(n_parts)]
        node = helper.make_node("Split", [value], outputs, name=outputs[0], axis=-1, num_outputs=n_parts)
        self.nodes.append(node)
        return outputs

    def floats(self, name: str, values: npt.ArrayLike) -> str:
        """Add a float32 constant."""
        return self._constant(name, np.ascontiguousarray(values, np.float32))

    def integers(self, *values: int) -> str:
        """Add a 1-D int64 constant; equal constants are added once."""
        return self._constant("int_" + "_".join(str(value) for value in values), np.asarray(values, np.int64))

    def table(self, name: str, values: npt.NDArray[np.int64]) -> str:
        """Add an int64 constant of any shape."""
        return self._constant(name, values)

    def first_token(self, hidden: str) -> str:
        """Add the vectors of the first token: (batch, dim) of (batch, length, dim)."""
        first = self.add("Slice", [hidden, *(self.integers(n) for n in (0, 1, 1))])
        return self.add("Squeeze", [first, self.integers(1)])

    def mask(self) -> str:
        """Add the mask as float32, once: (batch, length), 1 for a token, 0 for padding."""
        if "attention_mask" not in self._inputs:  # of a graph read from a checkpoint
            self._inputs = tuple(name for name in _INPUTS if name in (*self._inputs, "attention_mask"))
        name = f"{self._prefix}float_mask"
        if not any(name in node.output for node in self.nodes):
            self.add("Cast", ["attention_mask"], name, to=TensorProto.FLOAT)
        return name

    def model(self, outputs: Mapping[str, Sequence[str | int]]) -> onnx.ModelProto:
        """Return the model with these outputs (name to shape), verified by ONNX's checker."""
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in self._inputs
        ]
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in outputs.items()
        ]
        whole = helper.make_graph(self.nodes, "bert", inputs, values, list(self.constants.values()))
        model = helper.make_model(
            whole, opset_imports=self._opsets, ir_version=_IR_VERSION, producer_name="quarry"
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        name = self._prefix + name
        self.constants[name] = numpy_helper.from_array(values, name)
        return name
