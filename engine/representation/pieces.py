"""The representation `Pieces`: means of contiguous pieces of a text, cut at sentence ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.encoding.windows import piece_count, piece_starts, sentence_end_flags
from quarry.engine.representation.base import DocumentVectors, IntegerSettings, drop_empty_windows, scale_rows
from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["Pieces", "TextPieces", "piece_sums", "text_pieces"]


@dataclass(frozen=True)
class Pieces(IntegerSettings):
    """Means of contiguous pieces of the text, cut at sentence ends, and the mean of the whole document.

    For encoders that were not trained for clustering. Each window is cut into pieces of about equal length
    (see `piece_starts`). A document of more than one piece has one more centroid, the last: the mean over all its
    tokens. Special tokens are excluded. Memory: one window and the centroids.

    Attributes:
        tokens_per_piece: average length of a piece, 1 to 4096.
    """

    name: ClassVar[str] = "pieces"
    tokens_per_piece: int = 24

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroids of a document; see ``Representation.represent``."""
        sums: list[Float32Array] = []
        sizes: list[Int64Array] = []
        spans: list[tuple[int, int]] = []
        for window in drop_empty_windows(windows):
            whole = [(0, len(window.values))]
            pieces = text_pieces(text, window.starts, window.ends, whole, self.tokens_per_piece)
            sums.append(piece_sums(window.values, np.cumsum(pieces.sizes) - pieces.sizes))
            sizes.append(pieces.sizes)
            spans += pieces.spans
        joined = TextPieces(np.concatenate(sizes), spans)
        counts = joined.sizes.astype(np.float32)
        if len(spans) > 1:
            sums.append(np.concatenate(sums).sum(axis=0, keepdims=True))
            counts = np.append(counts, counts.sum())
        means = np.concatenate(sums) / counts[:, np.newaxis]
        return DocumentVectors(scale_rows(means, normalize), tuple((span,) for span in joined.spans_with_whole()))


@dataclass(frozen=True, eq=False)
class TextPieces:
    """The pieces of a text, window after window.

    Attributes:
        sizes: (n_pieces,) int64, number of tokens of each.
        spans: (start, end) characters that each covers.
    """

    sizes: Int64Array
    spans: list[tuple[int, int]]

    def spans_with_whole(self) -> list[tuple[int, int]]:
        """Return the spans, followed by the span of all pieces if there is more than one."""
        return [*self.spans, (self.spans[0][0], self.spans[-1][1])] if len(self.spans) > 1 else self.spans


def text_pieces(
    text: str,
    starts: Int64Array,
    ends: Int64Array,
    windows: Iterable[tuple[int, int]],
    tokens_per_piece: int,
) -> TextPieces:
    """Cut each window of a text into pieces.

    Args:
        text: text that the offsets refer to.
        starts: (n_tokens,) int64, first character of each token, ascending.
        ends: (n_tokens,) int64, one past the last character of each.
        windows: (first, stop) tokens of each window, none empty.
        tokens_per_piece: see `piece_starts`.
    """
    sizes: list[Int64Array] = [np.empty(0, np.int64)]
    spans: list[tuple[int, int]] = []
    for first, stop in windows:
        if piece_count(stop - first, tokens_per_piece) == 1:
            sizes.append(np.array([stop - first], np.int64))
            spans.append((int(starts[first]), int(ends[stop - 1])))
            continue
        flags = sentence_end_flags(text, starts[first:stop], ends[first:stop])
        cuts = piece_starts(flags, tokens_per_piece) + first
        stops = np.append(cuts[1:], stop)
        sizes.append(stops - cuts)
        spans += zip(starts[cuts].tolist(), ends[stops - 1].tolist(), strict=True)
    return TextPieces(np.concatenate(sizes), spans)


def piece_sums(values: Float32Array, starts: Int64Array) -> Float32Array:
    """Add up the token vectors of each piece.

    Args:
        values: (n_tokens, dim) float32.
        starts: (n_pieces,) int64, strictly ascending from 0: the first token of each piece.

    Returns:
        (n_pieces, dim) float32.
    """
    sums = np.empty((len(starts), values.shape[1]), np.float32)
    bounds = [*starts.tolist(), len(values)]
    # One reduction a piece: np.add.reduceat along the first axis takes four times as long.
    for piece, row in enumerate(sums):
        np.add.reduce(values[bounds[piece] : bounds[piece + 1]], axis=0, out=row)
    return sums
