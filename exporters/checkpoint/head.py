"""An encoder's head: how the token vectors of a network become the vector of a text."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from quarry.formats.bundle.encoder import Pooling
from quarry.formats.errors import CorruptFile

__all__ = ["Activation", "Aggregation", "Head", "Projection"]

Activation = Literal["identity", "tanh", "relu"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear layer, ``activation(x @ weights.T + biases)``.

    Attributes:
        weights: (n_out, n_in) float32.
        biases: (n_out,) float32, or None.
        activation: applied to the result.
    """

    weights: Floats
    biases: Floats | None
    activation: Activation


@dataclass(frozen=True, eq=False)
class Aggregation:
    """The parts of Aggretriever's head (Lin et al. 2022, section 3).

    Attributes:
        n_dims: dimension of agg*.
        terms: (1, dim) weights and (1,) bias that give a token's weight (Eq. 5).
        cls: (n, dim) weights and (n,) biases of the [CLS] part of the vector.
        n_words: size of the vocabulary.
        mlm: whether a token contributes the words that the masked-language-model head predicts at its position
            (Eq. 4), or only itself.
        signed: whether half of each dimension's words count as negative: agg* (Eq. 9), otherwise agg+ (Eq. 6).
    """

    n_dims: int
    terms: Projection
    cls: Projection
    n_words: int
    mlm: bool
    signed: bool = True


@dataclass(frozen=True, eq=False)
class Head:
    """Turns the last hidden states of a network into one vector.

    Attributes:
        pooling: see `quarry.formats.bundle.encoder.EncoderSettings`.
        normalize: whether the vector is scaled to L2 norm 1 at the end.
        projections: linear layers after the pooling, in order.
        aggregation: only with pooling ``aggretriever``.
    """

    pooling: Pooling
    normalize: bool
    projections: tuple[Projection, ...] = ()
    aggregation: Aggregation | None = None

    @property
    def has_token_vectors(self) -> bool:
        """Whether token vectors can be compared with text vectors.

        True if the head only pools, or if its linear layers commute with the pooling.
        """
        linear = all(layer.activation == "identity" for layer in self.projections)
        return self.aggregation is None and (not self.projections or (linear and self.pooling != "max"))

    def dim(self, n_hidden: int) -> int:
        """Return the dimension of the vector, given the dimension of the hidden states."""
        if self.aggregation is not None:
            return len(self.aggregation.cls.weights) + self.aggregation.n_dims
        return len(self.projections[-1].weights) if self.projections else n_hidden

    def check(self, n_hidden: int, n_words: int, path: Path) -> None:
        """Refuse layers that do not fit the network.

        Args:
            n_hidden: dimension of its hidden states.
            n_words: size of its vocabulary, if it has logits.
            path: the checkpoint's folder, for the error.

        Raises:
            CorruptFile: a layer expects another dimension or another vocabulary.
        """
        parts = self.aggregation
        for layer in self.projections if parts is None else (parts.terms, parts.cls):
            if layer.weights.shape[1] != n_hidden:
                raise CorruptFile(
                    "a layer of the head expects vectors of another dimension",
                    path=path,
                    expected=n_hidden,
                    actual=layer.weights.shape[1],
                )
            n_hidden = n_hidden if parts is not None else len(layer.weights)
        if parts is not None and parts.mlm and parts.n_words != n_words:
            raise CorruptFile(
                "config.json: 'vocab_size' is not that of the weights",
                path=path,
                expected=n_words,
                actual=parts.n_words,
            )

    def digest(self) -> str | None:
        """Return the SHA-256 of layers and settings, or None if the pooling's name says everything."""
        if self.aggregation is None and not self.projections:
            return None
        layers = list(self.projections)
        settings: list[object] = [layer.activation for layer in layers]
        if self.aggregation is not None:
            layers += [self.aggregation.cls, self.aggregation.terms]
            settings += [self.aggregation.n_dims, self.aggregation.mlm]
            settings += [] if self.aggregation.signed else ["agg+"]
        digest = hashlib.sha256(json.dumps(settings).encode("ascii"))
        for layer in layers:
            for array in (layer.weights, np.empty(0) if layer.biases is None else layer.biases):
                digest.update(repr(array.shape).encode("ascii"))
                digest.update(np.ascontiguousarray(array, "<f4").tobytes())
        return digest.hexdigest()
