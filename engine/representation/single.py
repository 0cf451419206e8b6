"""`Mean` of the token vectors; `Pooled` and `Passages`, the encoder's own pooling of texts and of passages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.engine.representation.base import (
    DocumentVectors,
    IntegerSettings,
    drop_empty_windows,
    scale_rows,
    window_extent,
)
from quarry.formats.arrays import Float32Array
from quarry.formats.errors import InvalidDocument

__all__ = ["Mean", "Passages", "Pooled"]


@dataclass(frozen=True)
class Mean(IntegerSettings):
    """One vector: the encoder's own mean pooling, special tokens included, over all windows.

    Windows are weighted by their tokens. Memory: one window.
    """

    name: ClassVar[str] = "mean"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroid of a document; see ``Representation.represent``."""
        del text
        return _average(windows, lambda window: window.text_mean, normalize)


@dataclass(frozen=True)
class Pooled(IntegerSettings):
    """One vector: the output of the encoder's own pooling, averaged over all windows.

    Windows are weighted by their tokens, as for a long query. Memory: one window.
    """

    name: ClassVar[str] = "pooled"
    reads: ClassVar[VectorKind] = "pooled"
    pooling: ClassVar[str | None] = None

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroid of a document; see ``Representation.represent``.

        Raises:
            InvalidDocument: a window has no pooled vector, too.
        """
        del text
        return _average(windows, _pooled_vector, normalize)


@dataclass(frozen=True)
class Passages(IntegerSettings):
    """The encoder's own vector of each passage, encoded as a text of its own, and their mean.

    For encoders whose vectors are not means of token vectors: by [CLS], by the maximum, or by Aggretriever (Lin et
    al. 2022, section 3). Windows are cut as `Pieces` cuts them. A document of more than one passage has one more
    centroid, the last: the mean of all, weighted by their tokens, as `Pooled` weights windows. The passages of
    an encoder that does not run a bundle are its windows. Memory: one window and the centroids.

    Attributes:
        tokens_per_passage: average length of a passage, 1 to 4096.
    """

    name: ClassVar[str] = "passages"
    reads: ClassVar[VectorKind] = "pooled"
    pooling: ClassVar[str | None] = None
    tokens_per_passage: int = 128

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroids of a document; see ``Representation.represent``.

        Raises:
            InvalidDocument: a window has no pooled vector, too.
        """
        del text
        passages = list(drop_empty_windows(windows))
        vectors = [_pooled_vector(passage)[np.newaxis] for passage in passages]
        spans = [(window_extent(passage),) for passage in passages]
        if len(passages) == 1:
            return DocumentVectors(scale_rows(vectors[0], normalize), tuple(spans))
        whole = _average(passages, _pooled_vector, normalize)
        values = np.concatenate([scale_rows(np.concatenate(vectors), normalize), whole.values])
        return DocumentVectors(values, (*spans, *whole.spans))


def _pooled_vector(window: TokenVectors) -> Float32Array:
    if window.pooled is None:
        raise InvalidDocument("the encoder gave no pooled vector")
    return window.pooled


def _average(
    windows: Iterable[TokenVectors], vector_of: Callable[[TokenVectors], Float32Array], normalize: bool
) -> DocumentVectors:
    """Return the mean of the windows' vectors, weighted by their tokens, with the span of all windows."""
    total = np.zeros(1)
    n_tokens = 0
    extents: list[tuple[int, int]] = []
    for window in drop_empty_windows(windows):
        total = total + vector_of(window).astype(np.float64) * len(window.values)
        n_tokens += len(window.values)
        extents.append(window_extent(window))
    mean = (total / n_tokens).astype(np.float32)[np.newaxis]
    return DocumentVectors(scale_rows(mean, normalize), (((extents[0][0], extents[-1][1]),),))
