"""Metrics, by which the vectors of an index are compared: inner product, cosine, or Euclidean distance.

An index ranks by inner products alone, larger is better; the other metrics are reduced to them.

- "ip": vectors are stored as they are.
- "cosine": vectors and queries are scaled to norm 1, so that inner products are cosines.
- "l2": |q - x|^2 = |q|^2 - 2 q.x + |x|^2, so the order of documents by distance is that by q.x - |x|^2 / 2, which
  is an inner product in one more dimension: of (x, -|x|^2 / 2) and (q, 1). Shrivastava and Li (2014, "Asymmetric
  LSH for Sublinear Time Maximum Inner Product Search", section 3) and Bachrach et al. (2014, "Speeding Up the Xbox
  Recommender System", section 3) use the identity in the other direction. Adding a constant to all scores changes
  no ranking. Here the added numbers are (r^2 - |x|^2) / (2 r) and r, with the typical norm r of the vectors that
  an index is begun with: they are about as large as r - |x|, hence no larger than the other numbers, and cost
  stored types of few bits no precision. Two more dimensions hold what the stored type rounds off, times 32 and
  1024, and x is the vector as stored: documents are ranked by their distances to the stored vectors, but for
  a thousandth of the rounding of one number. Zeros are appended up to a length that short codes divide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.formats.arrays import Float32Array, Float64Array
from quarry.formats.manifest import IndexSettings, Manifest, MetricRecord
from quarry.formats.vectors.centroids import quantize_int8

__all__ = ["Metric", "metric_queries", "stored_dim", "typical_norm"]


_UNIT = 1e-6  # norms that differ from 1 by no more are left unchanged, such as those of an encoder's vectors
_ALIGNED = 8
_ADDED = 3  # dimensions for "l2"
_FINER = 32.0  # times the unit of the dimension before


@dataclass(frozen=True)
class Metric:
    """The metric of an index.

    Attributes:
        name: "ip", "cosine" or "l2".
        dim: length of the vectors of documents and queries.
        stored_dim: length of the stored vectors; larger than `dim` for "l2".
        stored_as: "int8", "float16", or "none" if vectors are stored as codes alone.
        norm: reference norm for "l2"; 0 as long as there was no document.
    """

    name: str
    dim: int
    stored_dim: int
    stored_as: str
    norm: float = 1.0

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
        return cls(record.name, record.dim, settings.dim, settings.centroids, record.norm)

    def rows(self, vectors: Float32Array) -> Float32Array:
        """Return the (n, stored_dim) float32 rows that are stored for (n, dim) float32 vectors; `norm` is not 0.

        A vector of zeros has no direction; for "cosine" it stays zero. Numbers may become infinite for "l2".
        """
        if self.name == "cosine":
            return unit_rows(vectors)
        if self.name == "ip":
            return vectors
        rows = np.zeros((len(vectors), self.stored_dim), np.float32)
        rows[:, : self.dim] = vectors
        with np.errstate(over="ignore", invalid="ignore"):
            rows[:, self.dim] = self._added(vectors)
            if self.stored_as != "none" and len(rows):
                self._add_rest(rows)
        return rows

    def longest(self, limit: float) -> str:
        """Return for messages which vectors have rows whose numbers are up to `limit`, for "l2"."""
        norm = np.sqrt(self.norm**2 + 2 * self.norm * limit)
        return f"a norm up to {norm:.4g} in an index whose first vectors have a norm of about {self.norm:.4g}"

    def _added(self, vectors: Float32Array) -> Float64Array:
        wide = vectors.astype(np.float64)
        added: Float64Array = (self.norm**2 - np.einsum("ij,ij->i", wide, wide)) / (2 * self.norm)
        return added

    def _add_rest(self, rows: Float32Array) -> None:
        """Fill in what the first added dimension lacks, for the vectors as they will be stored."""
        unit = quantize_int8(rows)[1] if self.stored_as == "int8" else None
        largest = np.abs(rows).max(axis=1)
        stored = _stored(rows[:, : self.dim + 1], unit)
        rest = self._added(stored[:, : self.dim]) - stored[:, self.dim]
        for place in range(self.dim + 1, self.dim + _ADDED):
            rest = rest * _FINER
            rows[:, place] = np.clip(rest, -largest, largest)
            rest -= _stored(rows[:, place : place + 1], unit)[:, 0]

    def queries(self, vectors: Float32Array) -> Float32Array:
        """Return the (n, stored_dim) float32 queries whose inner products with stored rows rank documents."""
        if self.name == "cosine":
            return unit_rows(vectors)
        if self.name == "ip":
            return vectors
        queries = np.zeros((len(vectors), self.stored_dim), np.float32)
        queries[:, : self.dim] = vectors
        queries[:, self.dim : self.dim + _ADDED] = self.norm / _FINER ** np.arange(_ADDED)
        return queries

    def queries_of_rows(self, rows: Float32Array) -> Float32Array:
        """Return the queries for the vectors of (n, stored_dim) stored rows."""
        return self.queries(self.vectors(rows)) if self.name == "l2" else rows

    def vectors(self, rows: Float32Array) -> Float32Array:
        """Return the (n, dim) vectors that (n, stored_dim) rows were stored for."""
        return rows[:, : self.dim]

    def scores(self, query: Float32Array, products: Float32Array) -> Float32Array:
        """Return scores as users see them: for "l2" minus the squared Euclidean distance, otherwise unchanged.

        Args:
            query: (stored_dim,) float32, as `queries` returns it.
            products: (n,) float32 inner products of stored rows with it.
        """
        if self.name != "l2":
            return products
        own = query[: self.dim].astype(np.float64)
        shifted = 2 * products.astype(np.float64) - self.norm**2 - own @ own
        return np.minimum(shifted, 0).astype(np.float32)


def _stored(values: Float32Array, unit: Float32Array | None) -> Float32Array:
    """Return (n, m) values as they are read back: multiples of the (n,) units of int8 rows; None: float16."""
    if unit is None:
        return values.astype(np.float16).astype(np.float32)
    safe = np.where(unit > 0, unit, np.float32(1))[:, None]
    return np.rint(values / safe) * unit[:, None]


def unit_rows(vectors: Float32Array) -> Float32Array:
    """Scale (n, dim) float32 rows to norm 1; rows of zeros, and rows of norm 1 but for rounding, stay unchanged.

    Norms are computed in float64, in which no square of a float32 number overflows or underflows.
    """
    wide = vectors.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    scaled = np.abs(norms - 1) > _UNIT
    scaled &= norms > 0
    if not scaled.any():
        return vectors
    rows = vectors.copy()
    rows[scaled] = wide[scaled] / norms[scaled, None]
    return rows


def typical_norm(vectors: Iterable[Float32Array]) -> float:
    """Return the root mean square of the norms of (n, dim) arrays; 1 if there is none but zero."""
    n_rows, squares = 0, 0.0
    for each in vectors:
        wide = each.astype(np.float64)
        squares += float(np.einsum("ij,ij", wide, wide))
        n_rows += len(each)
    return float(np.sqrt(squares / n_rows)) if squares > 0 else 1.0


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
