"""Compressed documents on their way into a file: frames in a row, a run, share a dictionary; a file has many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quarry.formats.container.envelope import EnvelopeWriter

__all__ = ["FrameRun", "write_runs"]

Lengths = npt.NDArray[np.uint32] | npt.NDArray[np.int64]


class FrameRun(Protocol):
    """Frames of documents in a row that share a dictionary."""

    def dictionary(self) -> bytes:
        """The zstd dictionary, perhaps empty."""
        ...

    def lengths(self) -> Lengths:
        """(n,) the length of each frame in bytes."""
        ...

    def frames(self) -> Iterable[npt.NDArray[np.uint8]]:
        """All frames one after the other, in pieces."""
        ...


def write_runs(runs: Sequence[FrameRun], envelope: EnvelopeWriter) -> None:
    """Write the sections of the texts.

    Neighbours of one dictionary become one run; one without documents leaves no trace.
    """
    parts = [(run.dictionary(), run.lengths(), run) for run in runs]
    parts = [part for part in parts if len(part[1])]
    joined = [
        (dictionary, sum(len(lengths) for _, lengths, _ in group))
        for dictionary, group in groupby(parts, key=itemgetter(0))
    ]
    dictionaries, sizes = zip(*joined, strict=True)
    envelope.add("document_dictionaries", np.frombuffer(b"".join(dictionaries), np.uint8))
    envelope.add("dictionary_offsets", _starts([np.fromiter(map(len, dictionaries), np.int64)]))
    envelope.add("dictionary_ordinals", _starts([np.array(sizes, np.int64)]))
    n_bytes = sum(int(lengths.sum(dtype=np.int64)) for _, lengths, _ in parts)
    pieces = (piece for *_, run in parts for piece in run.frames())
    envelope.add_pieces("documents", np.uint8, (n_bytes,), pieces)
    envelope.add("document_offsets", _starts([lengths for _, lengths, _ in parts]))


def _starts(sizes: Sequence[npt.NDArray[np.integer[Any]]]) -> npt.NDArray[np.uint64]:
    """(n + 1,) uint64: where parts of these sizes, given in several arrays, start, and where the last one ends."""
    starts = np.zeros(1 + sum(map(len, sizes)), np.uint64)
    first = 0
    for each in sizes:
        part = starts[first + 1 : first + 1 + len(each)]
        np.cumsum(each, dtype=np.uint64, out=part)
        part += starts[first]
        first += len(each)
    return starts
