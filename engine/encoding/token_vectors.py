"""Token vectors of a text, with the characters of each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["TokenVectors", "VectorKind"]

VectorKind = Literal["token", "pooled"]
"""The input of a representation: token vectors, or one pooled vector for each window."""


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of one window of a text, without special tokens.

    Attributes:
        values: (n_tokens, dim) float32, the encoder's last hidden states; (n_tokens, 0), like `text_mean` and
            `first`, if the encoder returns pooled vectors only.
        starts: (n_tokens,) int64, first character (code point) of each token in the document's text.
        ends: (n_tokens,) int64, one past its last character.
        text_mean: (dim,) float32, the mean over *all* tokens of the window, including special tokens:
            the encoder's own mean pooling before normalization.
        first: (dim,) float32, the vector of the first special token ([CLS]).
        pooled: (dim,) float32, the window's vector by the encoder's own pooling; None if the encoder has none for
            documents.
    """

    values: Float32Array
    starts: Int64Array
    ends: Int64Array
    text_mean: Float32Array
    first: Float32Array
    pooled: Float32Array | None = None
