"""Adds an encoder's head to its network's graph.

A head computes in fp32: norms of unnormalized vectors overflow in half precision, and it is a thousandth of the
work. Negative term weights of Aggretriever count as 0, so that a vector does not depend on padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from quarry.exporters.checkpoint.head import Activation, Aggregation, Head, Projection
from quarry.exporters.graph.builder import Graph

__all__ = ["HEAD", "Backbone", "build_encoder_model"]

HEAD = "head."
"""Prefix of the names of a head's matrix products, which stay in fp32."""

_ACTIVATIONS: dict[Activation, str] = {"tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True, eq=False)
class Backbone:
    """The graph of a network and the names of its outputs.

    Attributes:
        graph: the graph, to be extended by a head.
        hidden: name of the last hidden states, (batch, length, n_hidden) float32.
        n_hidden: their dimension.
        logits: name of the masked-language-model head's output, (batch, length, n_words) float32, or "".
        n_words: size of the vocabulary, 0 without logits.
    """

    graph: Graph
    hidden: str
    n_hidden: int
    logits: str = ""
    n_words: int = 0


def build_encoder_model(backbone: Backbone, head: Head) -> onnx.ModelProto:
    """Complete an encoder's graph.

    Inputs, all (batch, length) int64 with both dimensions dynamic: ``input_ids``, ``attention_mask`` (1 for a
    token, 0 for padding, in any pattern), ``token_type_ids`` if the network has them. Outputs, float32: ``pooled``
    (batch, dim) and, if `Head.has_token_vectors`, ``token_vectors`` (batch, length, dim).
    """
    builder = _HeadBuilder(backbone.graph, head)
    dim = head.dim(backbone.n_hidden)
    outputs: dict[str, list[str | int]] = {"pooled": ["batch", dim]}
    hidden = backbone.hidden
    if head.has_token_vectors:
        for number, layer in enumerate(head.projections):
            hidden = builder.project(hidden, layer, f"projection_{number}")
        builder.graph.add("Identity", [hidden], "token_vectors")
        outputs = {"token_vectors": ["batch", "length", dim], **outputs}
    pooled = builder.pool(hidden, backbone.logits)
    if not head.has_token_vectors:
        for number, layer in enumerate(head.projections):
            pooled = builder.project(pooled, layer, f"projection_{number}")
    builder.graph.add("Identity", [builder.normalize(pooled) if head.normalize else pooled], "pooled")
    return builder.graph.model(outputs)


class _HeadBuilder:
    """Adds a head to a graph; every method returns the name of the tensor it added."""

    def __init__(self, graph: Graph, head: Head) -> None:
        self.graph = graph
        self._head = head

    def pool(self, hidden: str, logits: str) -> str:
        """Add the pooling: (batch, n)."""
        if self._head.aggregation is not None:
            return self._aggregate(hidden, logits, self._head.aggregation)
        poolings = {
            "mean": lambda: self._mean(hidden, self.graph.mask()),
            "weightedmean": lambda: self._mean(hidden, self._rising()),
            "cls": lambda: self.graph.first_token(hidden),
            "lasttoken": lambda: self._mean(hidden, self._last()),
            "max": lambda: self._max(hidden),
        }
        return poolings[self._head.pooling]()

    def normalize(self, pooled: str) -> str:
        """Add the division by the L2 norm."""
        add = self.graph.add
        norm = add("ReduceL2", [pooled, self.graph.integers(-1)], keepdims=1)
        return add("Div", [pooled, add("Max", [norm, self.graph.floats("tiny", 1e-12)])])

    def project(self, value: str, layer: Projection, name: str) -> str:
        """Add a linear layer and its activation."""
        add, floats = self.graph.add, self.graph.floats
        product = add("MatMul", [value, floats(f"{name}.weight", layer.weights.T)], f"{HEAD}{name}.matmul")
        if layer.biases is not None:
            product = add("Add", [product, floats(f"{name}.bias", layer.biases)])
        return add(_ACTIVATIONS[layer.activation], [product]) if layer.activation in _ACTIVATIONS else product

    def _mean(self, hidden: str, weights: str) -> str:
        """Add the mean over tokens with (batch, length) weights, 0 for padding."""
        add, integers = self.graph.add, self.graph.integers
        weights = add("Unsqueeze", [weights, integers(2)])
        total = add("ReduceSum", [add("Mul", [hidden, weights]), integers(1)], keepdims=0)
        count = add("ReduceSum", [weights, integers(1)], keepdims=0)
        return add("Div", [total, add("Max", [count, self.graph.floats("tiny_count", 1e-9)])])

    def _rising(self) -> str:
        """Add the number of each token of a text over that of the last, 0 for padding: (batch, length) float32."""
        numbers, most = (self._float(each) for each in self._numbers())
        return self.graph.add("Div", [numbers, self.graph.add("Max", [most, self.graph.floats("one", 1.0)])])

    def _last(self) -> str:
        """Add 1 for the last token of a text, and 0 for the others and padding: (batch, length) float32."""
        is_last = self.graph.add("Equal", self._numbers())
        return self.graph.add("Mul", [self._float(is_last), self.graph.mask()])

    def _numbers(self) -> list[str]:
        """Add the numbers of tokens, (batch, length) int64 from 1, 0 for padding, and the last one, (batch, 1)."""
        add, graph = self.graph.add, self.graph
        graph.mask()  # makes the input, if a stored graph has none
        counted = add("CumSum", ["attention_mask", graph.table(f"{HEAD}second_axis", np.array(1))])
        numbers = add("Mul", [counted, "attention_mask"])
        return [numbers, add("ReduceMax", [numbers, graph.integers(1)], keepdims=1)]

    def _float(self, value: str) -> str:
        return self.graph.add("Cast", [value], to=TensorProto.FLOAT)

    def _max(self, hidden: str) -> str:
        """Add the maximum over tokens; masked tokens get a very small value."""
        add, floats = self.graph.add, self.graph.floats
        absent = add("Sub", [floats("present", 1.0), self.graph.mask()])
        far = add("Unsqueeze", [add("Mul", [absent, floats("far_below", -1e9)]), self.graph.integers(2)])
        return add("ReduceMax", [add("Add", [hidden, far]), self.graph.integers(1)], keepdims=0)

    def _aggregate(self, hidden: str, logits: str, parts: Aggregation) -> str:
        """Add [CLS] and agg* (Lin et al. 2022, Eq. 4-9), in this order; negative term weights count as 0.

        A word's slot is its id modulo twice the dimension of agg*: each dimension has two slots, the even one
        positive, the odd one negative. For agg+ (Eq. 6) a dimension has one slot.
        """
        add, integers = self.graph.add, self.graph.integers
        weights = add("Squeeze", [self.project(hidden, parts.terms, "terms"), integers(2)])
        kept = add("Mul", [add("Relu", [weights]), self._without_first()])
        slots = self._predicted(logits, kept, parts) if parts.mlm else self._own(kept, parts)
        cls = self.project(self.graph.first_token(hidden), parts.cls, "cls")
        if not parts.signed:
            return add("Concat", [cls, slots], axis=-1)
        pairs = add("Reshape", [slots, integers(0, parts.n_dims, 2)])
        positive, negative = (add("Squeeze", [side, integers(2)]) for side in self.graph.split(pairs, 2))
        larger = add("Greater", [positive, negative])
        agg = add("Where", [larger, positive, add("Neg", [negative])])
        return add("Concat", [cls, agg], axis=-1)

    def _without_first(self) -> str:
        """Add the mask with a 0 at the first position of every text: [CLS] is not a word."""
        add, integers = self.graph.add, self.graph.integers
        later = add("Slice", [self.graph.mask(), integers(1), integers(2**31), integers(1)])
        return add("Pad", [later, integers(0, 1, 0, 0), self.graph.floats("no_word", 0.0)])

    def _predicted(self, logits: str, weights: str, parts: Aggregation) -> str:
        """Add the weights of the predicted words by slot, (batch, n_slots)."""
        add, integers = self.graph.add, self.graph.integers
        n_slots = _count_slots(parts)
        words = add("Mul", [add("Softmax", [logits], axis=-1), add("Unsqueeze", [weights, integers(2)])])
        best = add("ReduceMax", [words, integers(1)], keepdims=0)
        n_missing = -parts.n_words % n_slots
        padded = add("Pad", [best, integers(0, 0, 0, n_missing), self.graph.floats("nothing", 0.0)])
        slices = add("Reshape", [padded, integers(0, -1, n_slots)])
        return add("ReduceMax", [slices, integers(1)], keepdims=0)

    def _own(self, weights: str, parts: Aggregation) -> str:
        """Add the weights of the text's own words by slot, (batch, n_slots)."""
        add, graph = self.graph.add, self.graph
        n_slots = _count_slots(parts)
        batch = add("Shape", ["input_ids"], start=0, end=1)
        nothing = add(
            "Expand", [graph.floats("nothing", 0.0), add("Concat", [batch, graph.integers(n_slots)], axis=0)]
        )
        slots = add("Mod", ["input_ids", graph.integers(n_slots)])
        return add("ScatterElements", [nothing, slots, weights], axis=1, reduction="max")


def _count_slots(parts: Aggregation) -> int:
    return parts.n_dims * (2 if parts.signed else 1)
