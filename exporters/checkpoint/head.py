"""What follows an encoder's network: how the vectors of tokens become the vector of a text."""

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
        biases: (n_out,) float32, None for none.
        activation: what follows.
    """

    weights: Floats
    biases: Floats | None
    activation: Activation


@dataclass(frozen=True, eq=False)
class Aggregation:
    """The parts of Aggretriever's head (Lin et al. 2022, section 3).

    Attributes:
        n_dims: length of agg*.
        terms: (1, dim) weights and (1,) bias of a token's weight (Eq. 5).
        cls: (n, dim) weights and (n,) biases of the [CLS] part of the vector.
        n_words: vocabulary entries.
        mlm: whether a token stands for the words that the masked-language-model head predicts at its place
            (Eq. 4), or for itself alone.
    """

    n_dims: int
    terms: Projection
    cls: Projection
    n_words: int
    mlm: bool


@dataclass(frozen=True, eq=False)
class Head:
    """How one vector is made of the network's last hidden states.

    Attributes:
        pooling: see `quarry.formats.bundle.encoder.EncoderSettings`.
        normalise: whether the vector gets L2 norm 1 in the end.
        projections: linear layers behind the pooling, in order.
        aggregation: with pooling ``aggretriever``, and only then.
    """

    pooling: Pooling
    normalise: bool
    projections: tuple[Projection, ...] = ()
    aggregation: Aggregation | None = None

    @property
    def token_vectors(self) -> bool:
        """Whether vectors of tokens can be compared with vectors of texts.

        They can where pooling is all there is, and where linear layers can change places with it.
        """
        linear = all(layer.activation == "identity" for layer in self.projections)
        return self.aggregation is None and (not self.projections or (linear and self.pooling != "max"))

    def dim(self, n_hidden: int) -> int:
        """Length of the vector that is made of hidden states of a length."""
        if self.aggregation is not None:
            return len(self.aggregation.cls.weights) + self.aggregation.n_dims
        return len(self.projections[-1].weights) if self.projections else n_hidden

    def check(self, n_hidden: int, n_words: int, path: Path) -> None:
        """Refuse layers that do not fit to the network.

        Args:
            n_hidden: length of its hidden states.
            n_words: entries of its vocabulary, where it gives their logits.
            path: of the checkpoint, for the error.

        Raises:
            CorruptFile: one takes vectors of another length, or words of another vocabulary.
        """
        parts = self.aggregation
        for layer in self.projections if parts is None else (parts.terms, parts.cls):
            if layer.weights.shape[1] != n_hidden:
                raise CorruptFile(
                    "a layer of the head takes vectors of another length",
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
        """SHA-256 of all layers and settings that the name of the pooling does not tell; None without any."""
        if self.aggregation is None and not self.projections:
            return None
        layers = list(self.projections)
        settings: list[object] = [layer.activation for layer in layers]
        if self.aggregation is not None:
            layers += [self.aggregation.cls, self.aggregation.terms]
            settings += [self.aggregation.n_dims, self.aggregation.mlm]
        digest = hashlib.sha256(json.dumps(settings).encode("ascii"))
        for layer in layers:
            for array in (layer.weights, np.empty(0) if layer.biases is None else layer.biases):
                digest.update(repr(array.shape).encode("ascii"))
                digest.update(np.ascontiguousarray(array, "<f4").tobytes())
        return digest.hexdigest()
