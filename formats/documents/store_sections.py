"""Writes the sections of the compressed documents: runs of consecutive frames that share a dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import Int64Array, UInt8Array, UInt32Array, UInt64Array, offsets_from_sizes
from quarry.formats.container.writer import ContainerWriter

__all__ = ["FrameRun", "write_runs"]

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
    container.add("dictionary_offsets", _make_offsets([np.fromiter(map(len, dictionaries), np.int64)]))
    container.add("dictionary_ordinals", _make_offsets([np.array(sizes, np.int64)]))
    n_bytes = sum(int(lengths.sum(dtype=np.int64)) for _, lengths, _ in parts)
    pieces = (piece for *_, run in parts for piece in run.frames())
    container.add_pieces("documents", np.uint8, (n_bytes,), pieces)
    container.add("document_offsets", _make_offsets([lengths for _, lengths, _ in parts]))


def _make_offsets(sizes: Sequence[npt.NDArray[np.integer[Any]]]) -> UInt64Array:
    """Return the offsets of parts whose sizes are given in several arrays."""
    return offsets_from_sizes(np.concatenate(sizes)).view(np.uint64)
