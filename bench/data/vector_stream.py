"""Any number of realistic vectors, made in blocks: differences of real or clustered vectors added to such vectors.

Row i is ``normalize(b[j] + 0.35 (b[k] - b[l]))``, with j, k and l drawn at random: the directions in which rows
scatter are those in which the base vectors b differ from one another, so that covariance, clusters and the spread
of nearest neighbors are those of the base however many rows there are. The base is the centroids of an index;
without one it is 65,536 points of 2,048 topics of unequal sizes in a space of 48 dimensions whose variances fall,
and noise.

A block depends on the seed and on its number alone, so n rows are the first n of any larger number, and nothing
but the base and a block is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["BLOCK_ROWS", "VectorStream", "find_nearest"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

BLOCK_ROWS = 16_384
_SPREAD = 0.35
_BASE_ROWS = 1 << 16
_TOPICS = 2048
_INNER_DIM = 48
_NOISE = 0.3  # norm of what lies outside of the inner dimensions, relative to the rest
_SEED = 0
_QUERY_BLOCK = 1 << 40  # the number of a block that no row is in


class VectorStream:
    """Rows of L2 norm 1, and queries that are further such rows.

    Args:
        base: path of an index that stores int8 or float16 centroids; None: synthetic base vectors.
        dim: length of a vector if there is no index.
    """

    def __init__(self, base: Path | None = None, dim: int = 384) -> None:
        self._base = _synthetic_base(dim) if base is None else _centroids_of(base)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._base.shape[1])

    def blocks(self, n: int) -> Iterator[Floats]:
        """Yield the first n rows, at most `BLOCK_ROWS` at a time: (b, dim) float32."""
        for low in range(0, n, BLOCK_ROWS):
            yield self._block(low // BLOCK_ROWS)[: n - low]

    def rows(self, n: int) -> Floats:
        """Return the first n rows, (n, dim) float32."""
        found = np.empty((n, self.dim), np.float32)
        for number, block in enumerate(self.blocks(n)):
            found[number * BLOCK_ROWS : number * BLOCK_ROWS + len(block)] = block
        return found

    def queries(self, n: int) -> Floats:
        """Return n queries, at most `BLOCK_ROWS`: (n, dim) float32."""
        return self._block(_QUERY_BLOCK)[:n]

    def _block(self, number: int) -> Floats:
        generator = np.random.default_rng((_SEED, number))
        origin, plus, minus = generator.integers(0, len(self._base), (3, BLOCK_ROWS))
        rows = self._base[plus] - self._base[minus]
        rows *= np.float32(_SPREAD)
        rows += self._base[origin]
        return _normalized(rows)


def find_nearest(stream: VectorStream, sizes: list[int], queries: Floats, k: int) -> Iterator[tuple[int, Ints]]:
    """Yield each size, ascending, with the k nearest of so many rows, found exhaustively: (n_queries, k) int64."""
    scores, found = np.full((len(queries), k), -np.inf, np.float32), np.zeros((len(queries), k), np.int64)
    low = 0
    wanted = sorted(set(sizes))
    for block in stream.blocks(wanted[-1]):
        first, high = low, low + len(block)
        cuts = [size for size in wanted if low < size <= high]
        for stop in dict.fromkeys([*cuts, high]):
            scores, found = _merged(scores, found, queries @ block[low - first : stop - first].T, low, k)
            if stop in cuts:
                yield stop, np.take_along_axis(found, np.argsort(-scores, axis=1), axis=1)
            low = stop


def _merged(scores: Floats, found: Ints, new: Floats, first: int, k: int) -> tuple[Floats, Ints]:
    """Return the k best of both, in any order."""
    if not new.shape[1]:
        return scores, found
    numbers = np.broadcast_to(np.arange(first, first + new.shape[1]), new.shape)
    both, names = np.concatenate([scores, new], axis=1), np.concatenate([found, numbers], axis=1)
    kept = np.argpartition(-both, k - 1, axis=1)[:, :k]
    return np.take_along_axis(both, kept, axis=1), np.take_along_axis(names, kept, axis=1)


def _synthetic_base(dim: int) -> Floats:
    generator = np.random.default_rng((_SEED, _BASE_ROWS))
    inner = min(dim, _INNER_DIM)
    deviations = np.arange(1, inner + 1, dtype=np.float32) ** np.float32(-0.5)
    topics = generator.standard_normal((_TOPICS, inner), np.float32) * deviations
    shares = 1 / np.arange(1, _TOPICS + 1) ** 0.7
    of_row = generator.choice(_TOPICS, _BASE_ROWS, p=shares / shares.sum())
    points = (
        topics[of_row] + np.float32(0.6) * generator.standard_normal((_BASE_ROWS, inner), np.float32) * deviations
    )
    axes = np.linalg.qr(generator.standard_normal((dim, inner)))[0].astype(np.float32)
    noise = generator.standard_normal((_BASE_ROWS, dim), np.float32) * np.float32(_NOISE / np.sqrt(dim))
    return _normalized(_normalized(points) @ axes.T + noise)


def _centroids_of(path: Path) -> Floats:
    snapshot = Snapshot(Directory(path))
    parts = [batch for each in snapshot.segments for batch in each.reader.centroids.batches(None)]
    return _normalized(np.concatenate(parts))


def _normalized(rows: Floats) -> Floats:
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return rows
