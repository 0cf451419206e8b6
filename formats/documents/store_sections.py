"""Writes the sections of the compressed documents: runs of consecutive frames that share a dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array, UInt64Array
from quarry.formats.container.writer import ContainerWriter

__all__ = ["FrameRun", "write_runs"]

_BATCH_SIZES = 1 << 17  # added up at a time

Lengths = UInt32Array | Int64Array


class FrameRun(Protocol):
    """Frames of consecutive documents that share a dictionary."""

    def dictionary(self) -> bytes:
        """Return the zstd dictionary, perhaps empty."""
        ...

    def lengths(self) -> Lengths:
        """Return the length of each frame in bytes, (n,)."""
        ...

    def frames(self) -> Iterable[UInt8Array]:
        """Yield all frames, in pieces."""
        ...


def write_runs(runs: Sequence[FrameRun], container: ContainerWriter) -> None:
    """Write the sections of the texts.

    Adjacent runs with equal dictionaries become one run; runs without documents are left out.
    """
    parts = [(run.dictionary(), run.lengths(), run) for run in runs]
    parts = [part for part in parts if len(part[1])]
    joined = [
        (dictionary, sum(len(lengths) for _, lengths, _ in group))
        for dictionary, group in groupby(parts, key=itemgetter(0))
    ]
    dictionaries, sizes = zip(*joined, strict=True)
    container.add("document_dictionaries", np.frombuffer(b"".join(dictionaries), np.uint8))
    _add_offsets(container, "dictionary_offsets", [np.fromiter(map(len, dictionaries), np.int64)])
    _add_offsets(container, "dictionary_ordinals", [np.array(sizes, np.int64)])
    n_bytes = sum(int(lengths.sum(dtype=np.int64)) for _, lengths, _ in parts)
    pieces = (piece for *_, run in parts for piece in run.frames())
    container.add_pieces("documents", np.uint8, (n_bytes,), pieces)
    _add_offsets(container, "document_offsets", [lengths for _, lengths, _ in parts])


def _add_offsets(container: ContainerWriter, name: str, sizes: Sequence[npt.NDArray[np.integer[Any]]]) -> None:
    """Write the offsets of parts whose sizes are given in several arrays."""
    n_offsets = sum(map(len, sizes)) + 1
    container.add_pieces(name, np.uint64, (n_offsets,), _iterate_offsets(sizes))


def _iterate_offsets(sizes: Sequence[npt.NDArray[np.integer[Any]]]) -> Iterator[UInt64Array]:
    yield np.zeros(1, np.uint64)
    end = 0
    for each in sizes:
        for low in range(0, len(each), _BATCH_SIZES):
            ends = end + np.cumsum(each[low : low + _BATCH_SIZES], dtype=np.int64)
            end = int(ends[-1])
            yield ends.astype(np.uint64)
