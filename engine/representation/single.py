"""The representations of one vector: `Mean` of the token vectors and `Pooled`, the encoder's own pooling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.representation.base import (
    DocumentVectors,
    IntegerSettings,
    nonempty_windows,
    scale_rows,
    window_extent,
)
from quarry.formats.errors import InvalidDocument

__all__ = ["Mean", "Pooled"]


@dataclass(frozen=True)
class Mean(IntegerSettings):
    """One vector: the encoder's own mean pooling, special tokens included, over all windows.

    Windows are weighted by their tokens. Memory: one window.
    """

    name: ClassVar[str] = "mean"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Make the centroid of a document; see ``Representation.represent``."""
        del text
        total = np.zeros(1)
        n_tokens = 0
        extents: list[tuple[int, int]] = []
        for window in nonempty_windows(windows):
            total = total + window.text_mean * np.float64(len(window.values))
            n_tokens += len(window.values)
            extents.append(window_extent(window))
        mean = (total / n_tokens).astype(np.float32)[np.newaxis]
        return DocumentVectors(scale_rows(mean, normalize), (((extents[0][0], extents[-1][1]),),))


@dataclass(frozen=True)
class Pooled(IntegerSettings):
    """One vector: what the encoder's own pooling gives, whatever that is, averaged over all windows.

    Windows are weighted by their tokens, as those of a long query are. The only one for encoders whose vectors are
    not made of token vectors (Aggretriever: Lin et al. 2022, section 3). Memory: one window.
    """

    name: ClassVar[str] = "pooled"
    reads: ClassVar[VectorKind] = "pooled"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Make the centroid of a document; see ``Representation.represent``.

        Raises:
            InvalidDocument: a window has no pooled vector, too.
        """
        del text
        sizes: list[int] = []
        vectors: list[npt.NDArray[np.float32]] = []
        extents: list[tuple[int, int]] = []
        for window in nonempty_windows(windows):
            if window.pooled is None:
                raise InvalidDocument("the encoder gave no pooled vector")
            sizes.append(len(window.values))
            vectors.append(window.pooled)
            extents.append(window_extent(window))
        mean = np.average(np.stack(vectors).astype(np.float64), axis=0, weights=sizes).astype(np.float32)
        return DocumentVectors(scale_rows(mean[np.newaxis], normalize), (((extents[0][0], extents[-1][1]),),))
