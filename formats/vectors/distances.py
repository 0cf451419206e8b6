"""The reduction of Euclidean distances to inner products, by which inverted lists and codes find candidates.

|q - x|^2 = |q|^2 - 2 q.x + |x|^2, so the order of vectors by their distance from q is that by q.x - |x|^2 / 2,
which is an inner product in one more dimension: of (x, -|x|^2 / 2) and (q, 1). Shrivastava and Li (2014,
"Asymmetric LSH for Sublinear Time Maximum Inner Product Search", section 3) and Bachrach et al. (2014, "Speeding
Up the Xbox Recommender System", section 3) use the identity in the other direction. Adding a constant to all
scores changes no ranking. Here the added numbers are (r^2 - |x|^2) / (2 r) and r, with the typical norm r of the
vectors that a quantizer is trained on: they are about as large as r - |x|, hence no larger than the other numbers,
and cost lists and codes no precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from quarry.formats.arrays import Float32Array, Float64Array

__all__ = ["DistanceReduction"]

_LARGEST = 1e15  # magnitude of an added number, whose squares float32 can add


@dataclass(frozen=True)
class DistanceReduction:
    """Makes rows and queries whose inner products rank as distances do.

    Attributes:
        dim: length of the vectors; rows and queries are longer, with zeros after the added number.
        norm: the typical norm r of the vectors.
    """

    dim: int
    norm: float

    @classmethod
    def of(cls, vectors: Float32Array, dim: int) -> Self:
        """Return the reduction for vectors like the first `dim` numbers of (n, at least dim) rows."""
        wide = vectors[:, :dim].astype(np.float64)
        norm = float(np.sqrt(np.einsum("ij,ij", wide, wide) / max(1, len(wide))))
        return cls(dim, norm if norm > 0 else 1.0)

    def rows(self, rows: Float32Array) -> Float32Array:
        """Return (n, more than dim) float32 rows with the added number."""
        wide = rows[:, : self.dim].astype(np.float64)
        added = (self.norm**2 - np.einsum("ij,ij->i", wide, wide)) / (2 * self.norm)
        return self._extended(rows, np.clip(added, -_LARGEST, _LARGEST))

    def queries(self, queries: Float32Array) -> Float32Array:
        """Return (n, more than dim) float32 queries with the added number."""
        return self._extended(queries, self.norm)

    def scores(self, queries: Float32Array, rows: Float32Array) -> Float32Array:
        """Return minus half of the squared distances, as a share of the squared norms of the queries: (n, m).

        Args:
            queries: (n, at least dim) float32; for one of zeros it is minus half of the squared distances.
            rows: (m, at least dim) float32.
        """
        q, x = queries[:, : self.dim].astype(np.float64), rows[:, : self.dim].astype(np.float64)
        squares, others = np.einsum("ij,ij->i", q, q)[:, None], np.einsum("ij,ij->i", x, x)
        scores = q @ x.T - (squares + others) / 2
        shares: Float32Array = (scores / np.where(squares > 0, squares, 1)).astype(np.float32)
        return shares

    def _extended(self, vectors: Float32Array, added: Float64Array | float) -> Float32Array:
        extended = vectors.copy()
        extended[:, self.dim] = added
        extended[:, self.dim + 1 :] = 0
        return extended
