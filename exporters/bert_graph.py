"""Builds the ONNX graph of a BERT model from its weights, with standard operators only and without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporters.checkpoint import Checkpoint, Network, Weights
from formats.encoder_bundle import Pooling
from formats.errors import CorruptFile

__all__ = ["OPSET", "build_bert_graph", "build_reranker_graph"]

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

    def __init__(self, network: Network) -> None:
        self._path = network.path
        self._shape = network.shape
        self._weights: Weights = network.weights
        self.graph = _Graph()

    def weight(self, name: str, *shape: int | None) -> npt.NDArray[np.float32]:
        """Return a tensor of the checkpoint, of the shape given (None: any length)."""
        found = self._weights.get(name)
        if found is None:
            raise CorruptFile(f"the weights lack {name!r}", path=self._path)
        fits = len(found.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, found.shape, strict=True)
        )
        if not fits:
            raise CorruptFile(f"{name!r} has a wrong shape", path=self._path, expected=shape, actual=found.shape)
        return found

    def hidden_states(self) -> str:
        """Add everything from token ids to the last hidden states, (batch, length, dim)."""
        hidden = self._embeddings()
        bias = self._mask_bias()
        for layer in range(self._shape.n_layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}")
        return hidden

    def pooled(self, hidden: str, pooling: Pooling, normalise: bool) -> str:
        """Add an encoder's head: (batch, dim)."""
        add = self.graph.add
        pooled = self._mean(hidden) if pooling == "mean" else self._first(hidden)
        if not normalise:
            return pooled
        norm = add("ReduceL2", [pooled, self.graph.integers(-1)], keepdims=1)
        return add("Div", [pooled, add("Max", [norm, self.graph.floats("tiny", 1e-12)])])

    def score(self, hidden: str) -> str:
        """Add a reranker's head, the classifier's only logit: (batch,)."""
        add, dim = self.graph.add, self._shape.dim
        pooled = add("Tanh", [self._linear(self._first(hidden), "pooler.dense", dim, dim)])
        return add("Squeeze", [self._linear(pooled, "classifier", 1, dim), self.graph.integers(1)])

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

    def _linear(self, value: str, name: str, n_out: int | None = None, n_in: int | None = None) -> str:
        weights, biases = self.weight(f"{name}.weight", n_out, n_in), self.weight(f"{name}.bias", n_out)
        return self._product(value, weights, biases, name)

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
    hidden = builder.hidden_states()
    builder.graph.add("Identity", [hidden], "token_vectors")
    builder.graph.add("Identity", [builder.pooled(hidden, checkpoint.pooling, checkpoint.normalise)], "pooled")
    dim = checkpoint.shape.dim
    return _model(builder.graph, {"token_vectors": ["batch", "length", dim], "pooled": ["batch", dim]})


def build_reranker_graph(network: Network) -> onnx.ModelProto:
    """Build the fp32 graph of a BERT cross-encoder (Nogueira and Cho 2019).

    Inputs as of `build_bert_graph`. Output, float32: ``scores`` (batch,), the logit of a linear layer (classifier)
    over tanh of a linear layer (pooler) over the last hidden state of the first token.

    Raises:
        CorruptFile: a tensor is missing or has a shape that contradicts config.json.
    """
    builder = _BertBuilder(network)
    builder.graph.add("Identity", [builder.score(builder.hidden_states())], "scores")
    return _model(builder.graph, {"scores": ["batch"]})


def _model(graph: _Graph, shapes: Mapping[str, Sequence[str | int]]) -> onnx.ModelProto:
    """Wrap a graph, with its outputs' names and shapes, into a checked model."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in shapes.items()
    ]
    whole = helper.make_graph(graph.nodes, "bert", inputs, outputs, list(graph.constants.values()))
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="quarry")
    onnx.checker.check_model(model, full_check=True)
    return model
