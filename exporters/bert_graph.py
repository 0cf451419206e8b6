"""Builds the ONNX graph of a BERT encoder from its weights, with standard operators only and without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporters.checkpoint import Checkpoint, Weights
from formats.errors import CorruptFile

__all__ = ["OPSET", "build_bert_graph"]

OPSET = 20
_IR_VERSION = 10

# Added to the attention logits of masked tokens. Far enough to vanish in the softmax, near enough for half
# precision: the usual -3e38 turns rows into NaN or noise in fp16 and bf16.
_MASKED = -30000.0


class _Graph:
    """Collects nodes and constants; every method returns the name of what it added."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attributes: object) -> str:
        """Add a node with one output."""
        output = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def split(self, value: str, n_parts: int) -> list[str]:
        """Cut a tensor into equal parts along its last axis."""
        outputs = [f"split_{len(self.nodes)}_{part}" for part in range(n_parts)]
        node = helper.make_node("Split", [value], outputs, name=outputs[0], axis=-1, num_outputs=n_parts)
        self.nodes.append(node)
        return outputs

    def floats(self, name: str, values: npt.ArrayLike) -> str:
        """Add a float32 constant."""
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name)
        return name

    def integers(self, *values: int) -> str:
        """Add a 1-D int64 constant, or find it where it is there already."""
        name = "int_" + "_".join(str(value) for value in values)
        self.constants[name] = numpy_helper.from_array(np.asarray(values, np.int64), name)
        return name


class _BertBuilder:
    """Writes one checkpoint's network into a graph."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._shape = checkpoint.shape
        self._weights: Weights = checkpoint.weights
        self.graph = _Graph()

    def weight(self, name: str, *shape: int | None) -> npt.NDArray[np.float32]:
        """Return a tensor of the checkpoint, of the shape given (None: any length)."""
        found = self._weights.get(name)
        if found is None:
            raise CorruptFile(f"the weights lack {name!r}", path=self._checkpoint.path)
        lengths = tuple(have if want is None else want for want, have in zip(shape, found.shape, strict=False))
        if found.shape != lengths:
            raise CorruptFile(
                f"{name!r} has a wrong shape", path=self._checkpoint.path, expected=shape, actual=found.shape
            )
        return found

    def build(self) -> None:
        """Add everything from token ids to pooled vector."""
        hidden = self._embeddings()
        bias = self._mask_bias()
        for layer in range(self._shape.n_layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}")
        self.graph.add("Identity", [hidden], "token_vectors")
        self._pool(hidden)

    def _embeddings(self) -> str:
        add, dim = self.graph.add, self._shape.dim
        tables = {
            kind: self.graph.floats(f"{kind}_table", self.weight(f"embeddings.{kind}_embeddings.weight", n, dim))
            for kind, n in (("word", None), ("position", self._shape.n_positions), ("token_type", None))
        }
        words = add("Gather", [tables["word"], "input_ids"])
        types = add("Gather", [tables["token_type"], "token_type_ids"])
        length = add("Shape", ["input_ids"], start=1, end=2)
        zero = self.graph.integers(0)
        positions = add("Slice", [tables["position"], zero, length, zero])
        total = add("Add", [add("Add", [words, types]), positions])
        return self._layer_norm(total, "embeddings.LayerNorm")

    def _mask_bias(self) -> str:
        """Turn the mask (1 = token, 0 = nothing) into what is added to logits: (batch, 1, 1, length)."""
        add, floats = self.graph.add, self.graph.floats
        mask = add("Cast", ["attention_mask"], "float_mask", to=TensorProto.FLOAT)
        absent = add("Sub", [floats("one", 1.0), mask])
        bias = add("Mul", [absent, floats("masked", _MASKED)])
        return add("Unsqueeze", [bias, self.graph.integers(1, 2)])

    def _layer(self, hidden: str, bias: str, name: str) -> str:
        add = self.graph.add
        context = self._attention(hidden, bias, f"{name}.attention")
        attended = self._linear(context, f"{name}.attention.output.dense")
        hidden = self._layer_norm(add("Add", [attended, hidden]), f"{name}.attention.output.LayerNorm")
        inner = add("Gelu", [self._linear(hidden, f"{name}.intermediate.dense")])
        output = self._linear(inner, f"{name}.output.dense")
        return self._layer_norm(add("Add", [output, hidden]), f"{name}.output.LayerNorm")

    def _attention(self, hidden: str, bias: str, name: str) -> str:
        """Add softmax(Q K^T / sqrt(d) + bias) V, with one product for Q, K and V; Q's weights carry the scale."""
        add, integers = self.graph.add, self.graph.integers
        n_heads, dim = self._shape.n_heads, self._shape.dim
        scale = (dim // n_heads) ** -0.5
        parts = [f"{name}.self.{part}" for part in ("query", "key", "value")]
        weights = np.concatenate([self.weight(f"{part}.weight", dim, dim) for part in parts])
        biases = np.concatenate([self.weight(f"{part}.bias", dim) for part in parts])
        weights[:dim] *= scale
        biases[:dim] *= scale
        merged = self._product(hidden, weights, biases, f"{name}.self")
        heads = [
            add("Reshape", [part, integers(0, 0, n_heads, dim // n_heads)]) for part in self.graph.split(merged, 3)
        ]
        query = add("Transpose", [heads[0]], perm=[0, 2, 1, 3])
        key = add("Transpose", [heads[1]], perm=[0, 2, 3, 1])
        value = add("Transpose", [heads[2]], perm=[0, 2, 1, 3])
        logits = add("Add", [add("MatMul", [query, key]), bias])
        mixed = add("MatMul", [add("Softmax", [logits], axis=-1), value])
        return add("Reshape", [add("Transpose", [mixed], perm=[0, 2, 1, 3]), integers(0, 0, dim)])

    def _linear(self, value: str, name: str) -> str:
        return self._product(
            value, self.weight(f"{name}.weight", None, None), self.weight(f"{name}.bias", None), name
        )

    def _product(
        self, value: str, weights: npt.NDArray[np.float32], biases: npt.NDArray[np.float32], name: str
    ) -> str:
        """Add ``value @ weights.T + biases``."""
        add, floats = self.graph.add, self.graph.floats
        product = add("MatMul", [value, floats(f"{name}.weight", weights.T)], f"{name}.matmul")
        return add("Add", [product, floats(f"{name}.bias", biases)])

    def _layer_norm(self, value: str, name: str) -> str:
        dim, floats = self._shape.dim, self.graph.floats
        parameters = [floats(f"{name}.{part}", self.weight(f"{name}.{part}", dim)) for part in ("weight", "bias")]
        return self.graph.add("LayerNormalization", [value, *parameters], axis=-1, epsilon=self._shape.epsilon)

    def _pool(self, hidden: str) -> None:
        add = self.graph.add
        pooled = self._mean(hidden) if self._checkpoint.pooling == "mean" else self._first(hidden)
        if self._checkpoint.normalise:
            norm = add("ReduceL2", [pooled, self.graph.integers(-1)], keepdims=1)
            pooled = add("Div", [pooled, add("Max", [norm, self.graph.floats("tiny", 1e-12)])])
        add("Identity", [pooled], "pooled")

    def _mean(self, hidden: str) -> str:
        add, integers = self.graph.add, self.graph.integers
        mask = add("Unsqueeze", ["float_mask", integers(2)])
        total = add("ReduceSum", [add("Mul", [hidden, mask]), integers(1)], keepdims=0)
        count = add("ReduceSum", [mask, integers(1)], keepdims=0)
        return add("Div", [total, add("Max", [count, self.graph.floats("tiny_count", 1e-9)])])

    def _first(self, hidden: str) -> str:
        first = self.graph.add("Slice", [hidden, *(self.graph.integers(n) for n in (0, 1, 1))])
        return self.graph.add("Squeeze", [first, self.graph.integers(1)])


def build_bert_graph(checkpoint: Checkpoint) -> onnx.ModelProto:
    """Build the fp32 graph of a BERT encoder (Devlin et al. 2019) with its pooling.

    Inputs, all (batch, length) int64 with both lengths free: ``input_ids``, ``attention_mask`` (1 for a token,
    0 for none, in any pattern), ``token_type_ids``. Outputs, float32: ``token_vectors`` (batch, length, dim),
    the last hidden states, and ``pooled`` (batch, dim).

    Raises:
        CorruptFile: a tensor is missing or has a shape that contradicts config.json.
    """
    builder = _BertBuilder(checkpoint)
    builder.build()
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    dim = checkpoint.shape.dim
    outputs = [
        helper.make_tensor_value_info("token_vectors", TensorProto.FLOAT, ["batch", "length", dim]),
        helper.make_tensor_value_info("pooled", TensorProto.FLOAT, ["batch", dim]),
    ]
    graph = helper.make_graph(builder.graph.nodes, "bert", inputs, outputs, list(builder.graph.constants.values()))
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="quarry")
    onnx.checker.check_model(model, full_check=True)
    return model
