"""The `Representation` protocol, and functions that its implementations share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

import numpy as np

from quarry.engine.arguments import shown
from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = [
    "MAX_SETTING",
    "DocumentVectors",
    "IntegerSettings",
    "NoTokens",
    "Representation",
    "Spans",
    "cluster_spans",
    "drop_empty_windows",
    "scale_rows",
    "window_extent",
]

Spans = tuple[tuple[int, int], ...]
"""Character (code point) spans (start, end) of a text: ascending, disjoint, ``end`` exclusive."""

MAX_SETTING = 4096
"""The largest value of a setting."""


class NoTokens(InvalidDocument):
    """A text has no token, so it has no vector."""


@dataclass(frozen=True, eq=False)
class DocumentVectors:
    """The centroids of one document.

    Attributes:
        values: (n_centroids, dim) float32, n_centroids >= 1.
        spans: for each centroid the parts of the document's text whose tokens it was computed from.
    """

    values: Float32Array
    spans: tuple[Spans, ...]


class Representation(Protocol):
    """A method that turns the token vectors of a document into its centroids; it does not change.

    Attributes:
        name: name of the method in an index, at most 64 characters.
        reads: kind of the windows' vectors that it needs.
        pooling: the pooling whose vectors its centroids can be compared with, for encoders that were not trained
            for it; None: any.
    """

    name: ClassVar[str]
    reads: ClassVar[VectorKind]
    pooling: ClassVar[str | None]

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroids of a document.

        Args:
            text: text of the document, which the offsets of its tokens refer to.
            windows: the document's tokens, window after window, each read once.
            normalize: whether to scale every centroid to length 1.

        Raises:
            InvalidDocument: no window has a token.
        """

    def settings(self) -> dict[str, int]:
        """Return the settings that an index stores: integers from 1 to 4096 by name."""


@dataclass(frozen=True)
class IntegerSettings:
    """Base class of representations whose fields are settings, integers from 1 to 4096."""

    name: ClassVar[str]
    reads: ClassVar[VectorKind] = "token"
    pooling: ClassVar[str | None] = "mean"

    def __post_init__(self) -> None:
        for setting, value in self.settings().items():
            if type(value) is not int or not 1 <= value <= MAX_SETTING:
                raise InvalidSetting(
                    f"{setting} of the representation {self.name!r} is out of range",
                    expected=f"an integer from 1 to {MAX_SETTING}",
                    actual=shown(value),
                )

    def settings(self) -> dict[str, int]:
        """Return the fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def drop_empty_windows(windows: Iterable[TokenVectors]) -> Iterator[TokenVectors]:
    """Yield the windows that have tokens.

    Raises:
        NoTokens: there is none.
    """
    n_windows = 0
    for window in windows:
        if len(window.values):
            n_windows += 1
            yield window
    if n_windows == 0:
        raise NoTokens("the document has no token, so it has no vector")


def scale_rows(values: Float32Array, normalize: bool) -> Float32Array:
    """Return rows scaled to length 1 if `normalize`; a row of zeros stays zero."""
    if not normalize:
        return values
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
    if np.isinf(lengths).any():  # a square overflowed
        wide = values.astype(np.float64)
        wide /= np.maximum(np.abs(wide).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return scale_rows(wide.astype(np.float32), normalize)
    scaled: Float32Array = values / np.maximum(lengths, np.finfo(np.float32).tiny)[:, np.newaxis]
    return scaled


def window_extent(window: TokenVectors) -> tuple[int, int]:
    """Return the first character of a window's tokens and one past the last."""
    return int(window.starts[0]), int(window.ends[-1])


def cluster_spans(
    labels: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    n_clusters: int,
) -> tuple[Spans, ...]:
    """Collect for each cluster its runs of consecutive tokens, as spans of the text.

    Args:
        labels: (n_tokens,) int64, the cluster of each token.
        starts: (n_tokens,) int64, first character of each token, ascending.
        ends: (n_tokens,) int64, one past the last character of each.
        n_clusters: more than any label.
    """
    first = np.flatnonzero(np.diff(labels, prepend=-1))
    last = np.append(first[1:], len(labels)) - 1
    spans: list[list[tuple[int, int]]] = [[] for _ in range(n_clusters)]
    runs = zip(labels[first].tolist(), starts[first].tolist(), ends[last].tolist(), strict=True)
    for label, start, end in runs:
        before = spans[label]
        # Tokens can share a character (byte-level vocabularies), but spans of one centroid are disjoint.
        if before and start <= before[-1][1]:
            before[-1] = (before[-1][0], end)
        else:
            before.append((start, end))
    return tuple(map(tuple, spans))
