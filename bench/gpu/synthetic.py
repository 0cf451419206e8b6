"""Synthetic segments and texts, in memory and of any size."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from quarry.formats.documents.passages import PassageTable
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["SyntheticTable", "make_quantizer", "make_segment", "make_texts"]

_BLOCK_ROWS = 1 << 18
_NORM_ROUNDING = 1e-5  # of norms in float32
_WORDS = [
    *("index", "search", "vector", "document", "query", "token", "centroid"),
    *("cluster", "device", "memory", "kernel", "stream", "batch", "score"),
]


class SyntheticTable:
    """Random centroids with L2 norms near 1, with the interface of a `CentroidTable`.

    One random block is repeated, rotated by one dimension each time, so that rows differ. Blocks are made once in
    a process, and their rows are read in place.

    Args:
        lengths: (n_docs,) int64, number of centroids of each document.
        dim: dimension of a vector.
        kind: "int8", "float16" or "none".
    """

    def __init__(self, lengths: npt.NDArray[np.int64], dim: int, kind: str) -> None:
        self.kind = kind
        self.dim = dim
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.n_rows = int(self.offsets[-1])
        self._twice, self._scales, self.largest_norm = _make_block(min(_BLOCK_ROWS, self.n_rows), dim, kind)

    @property
    def n_bytes(self) -> int:
        """Bytes of all stored rows and their scales."""
        return self.n_rows * (self.dim * self._twice.itemsize + (4 if self.kind == "int8" else 0))

    def stored_slice(self, low: int, high: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return rows low to high - 1 as stored, and their scales."""
        blocks = range(low // _BLOCK_ROWS, -(-high // _BLOCK_ROWS))
        parts = [self._block_part(number, low, high) for number in blocks]
        scales = self._scales[np.arange(low, high) % len(self._scales)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts), scales

    def vectors(self, low: int, high: int) -> npt.NDArray[np.float64]:
        """Return rows low to high - 1, dequantized."""
        values, scales = self.stored_slice(low, high)
        vectors: npt.NDArray[np.float64] = values.astype(np.float64) * scales[:, None]
        return vectors

    def _block_part(self, number: int, low: int, high: int) -> npt.NDArray[Any]:
        start, shift = number * _BLOCK_ROWS, -number % self.dim
        return self._twice[max(low - start, 0) : high - start, shift : shift + self.dim]


@cache
def _make_block(n: int, dim: int, kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32], float]:
    """Return (n, 2 dim) rows as stored, each twice in a row, their scales, and the largest norm."""
    block = np.random.default_rng(dim).standard_normal((n, dim), np.float32)
    block /= np.linalg.norm(block, axis=1, keepdims=True)
    scales = np.ones(n, np.float32)
    if kind == "int8":
        scales = np.abs(block).max(axis=1) / np.float32(127)
        stored: npt.NDArray[Any] = np.rint(block / scales[:, None]).astype(np.int8)
    else:
        stored = block.astype(np.float16)
    norms = np.linalg.norm(stored.astype(np.float32), axis=1) * scales
    return np.tile(stored, 2), scales, float(norms.max()) * (1 + _NORM_ROUNDING)


def make_quantizer(dim: int, nlist: int, code_bytes: int, nbits: int) -> Quantizer:
    """Return a random quantizer: its quantization error does not matter here."""
    generator = np.random.default_rng(code_bytes)
    n_sub = code_bytes * 8 // nbits
    codebook = generator.standard_normal((n_sub, 1 << nbits, dim // n_sub)).astype(np.float32)
    coarse = generator.standard_normal((nlist, dim)).astype(np.float32) / np.sqrt(dim)
    return Quantizer(coarse.astype(np.float32), codebook, codebook, None, by_residual=False)


def make_segment(table: SyntheticTable, quantizer: Quantizer | None = None) -> OpenSegment:
    """Return a segment with this table and, if there is a quantizer, inverted lists of random codes."""
    n_docs = len(table.offsets) - 1
    lists = None if quantizer is None else _make_lists(table.n_rows, quantizer)
    path = "a synthetic segment"
    passages = PassageTable(cast(Any, SimpleNamespace(path=path)), n_docs, n_docs)
    reader = SimpleNamespace(
        centroids=table, lists=lists, passages=passages, n_docs=n_docs, n_rows=table.n_rows, path=path
    )
    parts = {"quantizer": quantizer, "deleted_passages": None, "live_passages": np.ones(n_docs, bool)}
    parts["distance_dim"] = None
    return cast(OpenSegment, SimpleNamespace(reader=reader, **parts))


def _make_lists(n_rows: int, quantizer: Quantizer) -> SimpleNamespace:
    generator = np.random.default_rng(0)
    rows = generator.permutation(n_rows).astype(np.uint32)
    codes = generator.integers(0, 256, (n_rows, quantizer.code_bytes), np.uint8)
    shares = generator.gamma(4, size=quantizer.nlist)
    sizes = generator.multinomial(n_rows, shares / shares.sum())
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = np.empty_like(rows)
    places[rows] = np.arange(n_rows, dtype=np.uint32)
    return SimpleNamespace(
        rows=lambda: rows,
        places=lambda: places,
        codes=lambda: codes,
        offsets=offsets,
        code_bytes=quantizer.code_bytes,
    )


def make_texts(n: int, n_words: int) -> list[str]:
    """Return texts of random words, in sentences of about ten words."""
    generator = np.random.default_rng(n * n_words)
    words = generator.choice(_WORDS, (n, n_words)).tolist()
    ends = (generator.random((n, n_words)) < 0.1).tolist()
    return [
        " ".join(word + "." * end for word, end in zip(*each, strict=True))
        for each in zip(words, ends, strict=True)
    ]
