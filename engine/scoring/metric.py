"""Metrics, by which the vectors of an index are compared: inner product, cosine, or Euclidean distance.

Larger scores are better.

- "ip": vectors are stored as they are.
- "cosine": vectors and queries are scaled to norm 1, so that inner products are cosines.
- "l2": stored vectors are compared with queries by their Euclidean distances. The score of a vector is minus half
  of the squared distance, computed from the difference, so that its relative error is that of float32 numbers
  whatever the norms of vectors are. Lists and codes find candidates by inner products
  (`quarry.formats.vectors.distances`), for which stored vectors have a few more dimensions, of zeros, up to a
  length that short codes divide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.formats.arrays import Float32Array, Float64Array
from quarry.formats.manifest import IndexSettings, Manifest, MetricRecord
from quarry.formats.vectors.centroids import quantize_int8

__all__ = ["Metric", "metric_queries", "stored_dim"]


_UNIT = 1e-6  # norms that differ from 1 by no more are left unchanged, such as those of an encoder's vectors
_ALIGNED = 8  # lengths are multiples of it
_ADDED = 3  # dimensions for "l2", one of which is used


@dataclass(frozen=True, eq=False)
class Metric:
    """The metric of an index.

    Attributes:
        name: "ip", "cosine" or "l2".
        dim: length of the vectors of documents and queries.
        stored_dim: length of the stored vectors; larger than `dim` for "l2".
        stored_as: "int8", "float16", or "none" if vectors are stored as codes alone.
        mean: (dim,) float32, subtracted from vectors before they are stored, and from queries but for "ip".
            Scores for "ip" then differ by a number that all vectors have in common. Cosines are computed from
            distances then, as products would lose what vectors with a large common part differ by.
    """

    name: str
    dim: int
    stored_dim: int
    stored_as: str
    mean: Float32Array | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the metric of an index."""
        return cls.of_settings(manifest.settings, is_normalized=manifest.encoder.normalize)

    @classmethod
    def of_settings(cls, settings: IndexSettings, *, is_normalized: bool = False) -> Self:
        """Return the metric of the settings of an index, whose encoder makes vectors of norm 1, or does not."""
        record = settings.metric
        if record is None:
            record = MetricRecord(name="cosine" if is_normalized else "ip", dim=settings.dim)
        mean = None if record.mean is None else np.frombuffer(record.mean, "<f4").astype(np.float32)
        return cls(record.name, record.dim, settings.dim, settings.centroids, mean)

    def rows(self, vectors: Float32Array) -> Float32Array:
        """Return the (n, stored_dim) float32 rows that are stored for (n, dim) float32 vectors.

        A vector of zeros has no direction; for "cosine" it stays zero, up to the mean. One that an index has given
        out as int8 stays as it is, so that its scores are those of before.
        """
        if self.mean is not None or self.name != "cosine":
            return self._compared(vectors)
        return self._padded(unit_rows(vectors, keeps_int8=self.stored_as != "float16"))

    def queries(self, vectors: Float32Array) -> Float32Array:
        """Return the (n, stored_dim) float32 queries for (n, dim) float32 vectors."""
        return vectors if self.name == "ip" else self._compared(vectors)

    def vectors(self, rows: Float32Array) -> Float32Array:
        """Return the (n, dim) vectors that (n, stored_dim) rows were stored for."""
        vectors = rows[:, : self.dim]
        return vectors if self.mean is None else vectors + self.mean

    def exact(self, vectors: Float32Array) -> Float64Array:
        """Return the (n, dim) float64 vectors that are compared for (n, dim) vectors: for "cosine" of norm 1."""
        wide = vectors.astype(np.float64)
        if self.name != "cosine":
            return wide
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        return wide / np.where(norms > 0, norms, 1)[:, None]

    def score(self, score: float, query: Float32Array) -> float:
        """Return a score as users see it: for "l2" minus the squared Euclidean distance, for others the product.

        Args:
            score: the score of a stored row.
            query: (stored_dim,) float32, as `queries` returns it.
        """
        if self.name == "l2":
            return min(2 * score, 0.0)
        if self.mean is None:
            return score
        return score + (1.0 if self.name == "cosine" else float(query.astype(np.float64) @ self.mean))

    @property
    def score_unit(self) -> float:
        """The difference of scores of stored rows that users see as 1."""
        return 0.5 if self.name == "l2" else 1.0

    def _compared(self, vectors: Float32Array) -> Float32Array:
        if self.mean is not None:
            return self._padded((self.exact(vectors) - self.mean).astype(np.float32))
        return self._padded(unit_rows(vectors) if self.name == "cosine" else vectors)

    def _padded(self, vectors: Float32Array) -> Float32Array:
        if vectors.shape[1] == self.stored_dim:
            return vectors
        rows = np.zeros((len(vectors), self.stored_dim), np.float32)
        rows[:, : self.dim] = vectors
        return rows


def unit_rows(vectors: Float32Array, *, keeps_int8: bool = False) -> Float32Array:
    """Scale (n, dim) float32 rows to norm 1; rows of zeros, and rows of norm 1 but for rounding, stay unchanged.

    Norms are computed in float64, in which no square of a float32 number overflows or underflows.

    Args:
        vectors: the rows.
        keeps_int8: whether rounding to int8 is such a rounding, too.
    """
    wide = vectors.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    scaled = np.abs(norms - 1) > _UNIT
    scaled &= norms > 0
    if keeps_int8:
        dim = vectors.shape[1]
        close = np.flatnonzero(scaled & (np.abs(norms - 1) < math.sqrt(dim) / 254 * norms))
        values, scales = quantize_int8(vectors[close])
        errors = np.abs(values * scales[:, None] - vectors[close]).max(axis=1, initial=0)
        # Rounding moves all values but the largest by half a step at most, which bounds the square of the norm.
        steps = np.abs(values).sum(axis=1, dtype=np.int64) - 127 + dim / 4
        unit = np.abs(norms[close] ** 2 - 1) <= scales.astype(np.float64) ** 2 * steps + _UNIT
        scaled[close[(errors <= _UNIT * scales) & unit]] = False
    if not scaled.any():
        return vectors
    rows = vectors.copy()
    rows[scaled] = wide[scaled] / norms[scaled, None]
    return rows


def stored_dim(dim: int, code_bytes: int | None) -> int:
    """Return the length of stored vectors for "l2": `dim` and three more at least, and such that codes divide it.

    Args:
        dim: length of the vectors.
        code_bytes: bytes of a code; None: the length is chosen that allows for the longest codes, up to 48 bytes.
    """
    if code_bytes:
        unit = 2 * code_bytes
        return -(-(dim + _ADDED) // unit) * unit
    first = -(-(dim + _ADDED) // _ALIGNED) * _ALIGNED
    lengths = range(first, max(first, dim + dim // 16) + 1, _ALIGNED)
    return max(lengths, key=lambda length: (max(n for n in range(1, 49) if length % (2 * n) == 0), -length))


def metric_queries(metric: Metric, vectors: Queries) -> Queries:
    """Return (n, dim) query vectors as the index compares them: (n, stored_dim); see `Metric.queries`."""
    return vectors if metric.name == "ip" else metric.queries(to_host_vectors(vectors))
