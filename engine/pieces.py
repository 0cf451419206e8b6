"""Where the tokens of a window are cut into contiguous pieces, and the sum of each piece's vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["piece_starts", "piece_sums"]

# How far from the ideal cut a sentence end may lie, as a share of a piece's length. Below one half, two
# neighbouring cuts can never meet or cross.
_TOLERANCE = 1 / 3


def piece_starts(sentence_ends: npt.NDArray[np.bool_], tokens_per_piece: int) -> npt.NDArray[np.int64]:
    """Cut a window's tokens into max(1, round(n_tokens / tokens_per_piece)) contiguous pieces.

    The ideal cuts divide the tokens equally. Each goes to the sentence end nearest to it (the earlier of
    two equally near) if that lies within a third of a piece's length, and otherwise to the equal cut.

    Args:
        sentence_ends: (n_tokens,) bool, n_tokens >= 1, true where a sentence ends after the token.
        tokens_per_piece: tokens in a piece, at least 1.

    Returns:
        (n_pieces,) int64, strictly ascending from 0: the first token of each piece.
    """
    n_tokens = len(sentence_ends)
    n_pieces = max(1, round(n_tokens / tokens_per_piece))
    starts = np.arange(n_pieces) * n_tokens // n_pieces
    candidates = np.flatnonzero(sentence_ends) + 1
    if n_pieces == 1 or candidates.size == 0:
        return starts
    length = n_tokens / n_pieces
    distances = np.abs(candidates[:, np.newaxis] - np.arange(1, n_pieces) * length)
    nearest = distances.argmin(axis=0)
    is_near = distances.min(axis=0) <= length * _TOLERANCE
    starts[1:] = np.where(is_near, candidates[nearest], starts[1:])
    return starts


def piece_sums(values: npt.NDArray[np.float32], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
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
