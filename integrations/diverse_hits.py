"""Hits that are relevant and differ from each other: maximal marginal relevance (Carbonell and Goldstein 1998)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quarry.engine import Document, Engine, Hit

__all__ = ["mean_vectors", "select_diverse"]

Vectors = npt.NDArray[np.float32]


def mean_vectors(index: Engine, hits: Sequence[Hit], dim: int) -> Vectors:
    """Return the mean of each hit's stored vectors, (n, dim) float32 of norm 1; 0 if it was deleted meanwhile."""
    stored = {each.id: each for each in index.get({hit.id for hit in hits}, vectors=True)}
    means = [_mean(stored[hit.id], hit.extent) if hit.id in stored else np.zeros(dim) for hit in hits]
    return _normalize(np.array(means, np.float32).reshape(len(hits), dim))


def select_diverse(
    index: Engine, query: npt.ArrayLike, hits: Sequence[Hit], k: int, relevance_weight: float
) -> list[Hit]:
    """Select hits one after another, each by its relevance and its difference from those selected before.

    Args:
        index: the index that the hits are from.
        query: (dim,) vector of the query.
        hits: the hits to select from.
        k: number of hits; fewer if there are not as many.
        relevance_weight: 1 selects by the cosine with the query alone, 0 by difference alone.
    """
    query_vector = _normalize(np.asarray(query, np.float32)[None])[0]
    vectors = mean_vectors(index, hits, len(query_vector))
    relevance = vectors @ query_vector
    similarity = vectors @ vectors.T
    selected: list[int] = []
    while len(selected) < min(k, len(hits)):
        redundancy = similarity[:, selected].max(axis=1, initial=-1) if selected else np.zeros(len(hits))
        gain = relevance_weight * relevance - (1 - relevance_weight) * redundancy
        gain[selected] = -np.inf
        selected.append(int(np.argmax(gain)))
    return [hits[number] for number in selected]


def _mean(document: Document, extent: tuple[int, int] | None) -> Vectors:
    """Return the mean of a document's vectors, or of those whose spans are in an extent of it."""
    vectors = np.asarray(document.vectors, np.float32)
    if extent is not None:
        inside = [extent[0] <= start and end <= extent[1] for start, end in document.spans]
        vectors = vectors[inside] if any(inside) else vectors
    mean: Vectors = vectors.mean(0)
    return mean


def _normalize(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit
