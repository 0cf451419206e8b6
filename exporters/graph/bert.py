"""Builds the ONNX graph of a BERT model from its weights, with standard operators only and without torch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from quarry.exporters.checkpoint.checkpoint import Network, Weights
from quarry.exporters.graph.builder import Graph
from quarry.exporters.graph.head import Backbone
from quarry.formats.errors import CorruptFile

__all__ = ["build_backbone", "build_reranker_graph"]

# Added to the attention logits of masked tokens. Small enough to vanish in the softmax, and within the range of
# half precision: the usual -3e38 gives NaN or noise in fp16 and bf16.
_MASKED = -30000.0

_LARGEST_DISTANCE = 128  # of relative positions; more distant tokens share a bucket


class _BertBuilder:
    """Builds the graph of one checkpoint's network."""

    def __init__(self, network: Network) -> None:
        self._path = network.path
        self._shape = network.shape
        self._weights: Weights = network.weights
        self.graph = Graph()

    def weight(self, name: str, *shape: int | None) -> npt.NDArray[np.float32]:
        """Return a tensor of the checkpoint and check its shape (None: any size)."""
        values = self._weights.get(name)
        if values is None:
            raise CorruptFile(f"the weights lack {name!r}", path=self._path)
        fits = len(values.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, values.shape, strict=True)
        )
        if not fits:
            raise CorruptFile(f"{name!r} has a wrong shape", path=self._path, expected=shape, actual=values.shape)
        return values

    def hidden_states(self) -> str:
        """Add the network from token ids to the last hidden states, (batch, length, dim)."""
        hidden = self._embeddings()
        bias = self._mask_bias()
        for layer in range(self._shape.n_layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}")
        return hidden

    def logits(self, hidden: str) -> tuple[str, int]:
        """Add the masked-language-model head, (batch, length, n_words); return its name and n_words."""
        dim, name = self._shape.dim, "cls.predictions"
        inner = self.graph.add("Gelu", [self._linear(hidden, f"{name}.transform.dense", dim, dim)])
        normed = self._layer_norm(inner, f"{name}.transform.LayerNorm")
        tied = f"{name}.decoder.weight" not in self._weights
        words = self.weight("embeddings.word_embeddings.weight" if tied else f"{name}.decoder.weight", None, dim)
        biases = self.weight(f"{name}.bias", len(words))
        return self._product(normed, words, biases, f"{name}.decoder"), len(words)

    def score(self, hidden: str) -> str:
        """Add a reranker's head, the classifier's single logit: (batch,)."""
        add, dim = self.graph.add, self._shape.dim
        pooled = add("Tanh", [self._linear(self.graph.first_token(hidden), "pooler.dense", dim, dim)])
        return add("Squeeze", [self._linear(pooled, "classifier", 1, dim), self.graph.integers(1)])

    def _embeddings(self) -> str:
        add, shape = self.graph.add, self._shape
        kinds = ("word", "position", "token_type") if shape.token_types else ("word", "position")
        n_positions = shape.n_positions + (0 if shape.padding_id is None else shape.padding_id + 1)
        sizes = {"word": None, "position": n_positions, "token_type": None}
        tables = {
            kind: self.graph.floats(
                f"{kind}_table", self.weight(f"embeddings.{kind}_embeddings.weight", sizes[kind], shape.dim)
            )
            for kind in kinds
        }
        total = add("Gather", [tables["word"], "input_ids"])
        types = add("Gather", [tables["token_type"], "token_type_ids"]) if shape.token_types else ""
        positions = self._positions(tables["position"])
        if types:
            total = add("Add", [total, types])
        return self._layer_norm(add("Add", [total, positions]), "embeddings.LayerNorm")

    def _positions(self, table: str) -> str:
        """Add the position embeddings: the first rows of the table, or numbered as in RoBERTa."""
        add, padding_id = self.graph.add, self._shape.padding_id
        if padding_id is None:
            length = add("Shape", ["input_ids"], start=1, end=2)
            zero = self.graph.integers(0)
            return add("Slice", [table, zero, length, zero])
        padding = self.graph.integers(padding_id)
        tokens = add("Cast", [add("Not", [add("Equal", ["input_ids", padding])])], to=TensorProto.INT64)
        counted = add("CumSum", [tokens, self.graph.table("second_axis", np.array(1))])
        return add("Gather", [table, add("Add", [add("Mul", [counted, tokens]), padding])])

    def _mask_bias(self) -> str:
        """Turn the mask (1: token, 0: padding) into a term added to the logits, (batch, 1, 1, length)."""
        add, floats = self.graph.add, self.graph.floats
        absent = add("Sub", [floats("one", 1.0), self.graph.mask()])
        bias = add("Mul", [absent, floats("masked", _MASKED)])
        bias = add("Unsqueeze", [bias, self.graph.integers(1, 2)])
        return bias if self._shape.n_buckets is None else add("Add", [bias, self._distance_bias()])

    def _distance_bias(self) -> str:
        """Add the attention bias by relative position, (1, n_heads, length, length)."""
        add, shape = self.graph.add, self._shape
        name = "encoder.relative_attention_bias.weight"
        biases = self.weight(name, shape.n_buckets, shape.n_heads)
        distances = np.arange(1 - shape.n_positions, shape.n_positions)
        table = self.graph.floats("distance_table", biases[_buckets(distances, len(biases))])
        length = add("Squeeze", [add("Shape", ["input_ids"], start=1, end=2), self.graph.integers(0)])
        numbers = [self.graph.table(f"number_{n}", np.array(n)) for n in (0, 1)]
        positions = add("Range", [numbers[0], length, numbers[1]])
        there = add("Unsqueeze", [positions, self.graph.integers(0)])
        here = add("Unsqueeze", [positions, self.graph.integers(1)])
        rows = add("Add", [add("Sub", [there, here]), self.graph.integers(shape.n_positions - 1)])
        bias = add("Transpose", [add("Gather", [table, rows])], perm=[2, 0, 1])
        return add("Unsqueeze", [bias, self.graph.integers(0)])

    def _layer(self, hidden: str, bias: str, name: str) -> str:
        add = self.graph.add
        context = self._attention(hidden, bias, f"{name}.attention")
        attended = self._linear(context, f"{name}.attention.output.dense")
        hidden = self._layer_norm(add("Add", [attended, hidden]), f"{name}.attention.output.LayerNorm")
        inner = add("Gelu", [self._linear(hidden, f"{name}.intermediate.dense")])
        output = self._linear(inner, f"{name}.output.dense")
        return self._layer_norm(add("Add", [output, hidden]), f"{name}.output.LayerNorm")

    def _attention(self, hidden: str, bias: str, name: str) -> str:
        """Add softmax(Q K^T / sqrt(d) + bias) V, with one product for Q, K and V and the scale in Q's weights."""
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


def build_backbone(network: Network, mlm: bool = False) -> Backbone:
    """Build the fp32 graph of a BERT encoder (Devlin et al. 2019) up to its last hidden states.

    Args:
        network: shape and weights.
        mlm: whether to add the masked-language-model head.

    Raises:
        CorruptFile: a tensor is missing or has a shape that contradicts config.json.
    """
    builder = _BertBuilder(network)
    hidden = builder.hidden_states()
    if not mlm:
        return Backbone(builder.graph, hidden, network.shape.dim)
    logits, n_words = builder.logits(hidden)
    return Backbone(builder.graph, hidden, network.shape.dim, logits, n_words)


def build_reranker_graph(network: Network) -> onnx.ModelProto:
    """Build the fp32 graph of a BERT cross-encoder (Nogueira and Cho 2019).

    Inputs as of an encoder. Output, float32: ``scores`` (batch,), the logit of a linear layer (classifier) over
    tanh of a linear layer (pooler) over the last hidden state of the first token.

    Raises:
        CorruptFile: a tensor is missing or has a shape that contradicts config.json.
    """
    builder = _BertBuilder(network)
    builder.graph.add("Identity", [builder.score(builder.hidden_states())], "scores")
    return builder.graph.model({"scores": ["batch"]})


def _buckets(distances: npt.NDArray[np.int64], n_buckets: int) -> npt.NDArray[np.int64]:
    """Return the buckets of relative positions as in T5 (Raffel et al. 2020, section 2.1).

    Half of the buckets are for each direction; half of those hold one distance each, the others grow
    logarithmically.
    """
    n_side = n_buckets // 2
    n_exact = n_side // 2
    far = np.abs(distances)
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / n_exact) / np.float32(
        np.log(_LARGEST_DISTANCE / n_exact)
    )
    grown = np.minimum(n_exact + (ratio * (n_side - n_exact)).astype(np.int64), n_side - 1)
    return np.where(distances > 0, n_side, 0) + np.where(far < n_exact, far, grown)
