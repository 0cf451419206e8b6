"""The lengths of decoded vectors, by which scores of codes alone are divided."""

from __future__ import annotations

import numpy as np

from quarry.formats.arrays import Float32Array, Int64Array, UInt8Array
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["CodeLengths", "lengths_bytes", "lengths_of"]

_DECODED_AT_ONCE = 4096
_COLUMNS = 4096


class CodeLengths:
    """Lengths of the decoded vectors of a segment, each computed when it is first needed, and kept.

    A length does not depend on the rows that it is computed with, so threads that compute it at the same time
    write the same value.

    Args:
        quantizer: of the codes.
        n_rows: number of rows of the segment.
    """

    def __init__(self, quantizer: Quantizer, n_rows: int) -> None:
        self._quantizer = quantizer
        self._lengths = np.zeros(n_rows, np.float32)  # 0: not computed yet; memory is taken by what is written

    def of(self, rows: Int64Array, lists: Int64Array | None, codes: UInt8Array) -> Float32Array:
        """Return the lengths of rows: (n,) float32, above 0.

        Args:
            rows: (n,) int64.
            lists: (n,) int64, the list of each row; None without residuals.
            codes: (n, M) uint8, the numbers of the sub-vectors of each row.
        """
        lengths = self._lengths[rows]
        unknown = np.flatnonzero(lengths == 0)
        for low in range(0, len(unknown), _DECODED_AT_ONCE):
            some = unknown[low : low + _DECODED_AT_ONCE]
            vectors = self._quantizer.score_codebook[np.arange(codes.shape[1]), codes[some]].reshape(len(some), -1)
            if lists is not None:
                vectors += self._quantizer.coarse[lists[some]]
            lengths[some] = self._lengths[rows[some]] = lengths_of(vectors)
        return lengths


def lengths_bytes(quantizer: Quantizer, n_rows: int) -> int:
    """Return the memory of all `CodeLengths` of a segment; 0 if decoded vectors keep their length."""
    return 4 * n_rows if quantizer.unit_length else 0


def lengths_of(vectors: Float32Array) -> Float32Array:
    """Return what (n, dim) decoded vectors are divided by to have length 1: their lengths, 1 for length 0."""
    squares = np.zeros(len(vectors), np.float32)
    for low in range(
        0, vectors.shape[1], _COLUMNS
    ):  # the sum of more, of one row, has other last bits than of several
        part = vectors[:, low : low + _COLUMNS]
        squares += np.einsum("ij,ij->i", part, part)
    lengths: Float32Array = np.sqrt(squares)
    lengths[lengths == 0] = 1
    return lengths
