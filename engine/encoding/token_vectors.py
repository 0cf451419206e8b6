"""The vectors of a text's tokens, with the characters each token stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["TokenVectors", "VectorKind"]

VectorKind = Literal["token", "pooled"]
"""What a representation makes centroids of: the vectors of tokens, or one vector for each window of text."""


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of one window of one text, special tokens left out.

    Attributes:
        values: (n_tokens, dim) float32, the encoder's last hidden states; (n_tokens, 0), and so `text_mean` and
            `first`, where the encoder gives pooled vectors only.
        starts: (n_tokens,) int64, first character (code point) of each token in the document's text.
        ends: (n_tokens,) int64, one past its last character.
        text_mean: (dim,) float32, the mean over *all* tokens of the window, special ones included:
            what the encoder's own mean pooling gives, before any normalisation.
        first: (dim,) float32, the vector of the first special token ([CLS]).
        pooled: (dim,) float32, the window's one vector by the encoder's own pooling; None where the encoder has
            none for documents.
    """

    values: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    text_mean: npt.NDArray[np.float32]
    first: npt.NDArray[np.float32]
    pooled: npt.NDArray[np.float32] | None = None
