"""Merges the texts of several segments; most frames are copied without decompressing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import zstandard

from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array
from quarry.formats.container.directory import Directory
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.store import DocStore, DocStoreWriter, FrameRun, write_runs
from quarry.formats.errors import CorruptFile

__all__ = ["CopyPolicy", "merge_documents"]


@dataclass(frozen=True, kw_only=True)
class CopyPolicy:
    """Policy that selects the runs of frames that a merge copies unchanged, with their dictionary.

    Attributes:
        run_bytes: minimum size of a run that is always copied: its dictionary is at most 6 % of it.
        file_share: dictionaries of smaller runs may take 1 / file_share of the file together.
        good_dictionary_bytes: minimum size of these dictionaries: larger ones compress at most 4 % better.
        max_runs: maximum number of runs in a file: each needs memory for its dictionary.
    """

    run_bytes: int = 1 << 20
    file_share: int = 128
    good_dictionary_bytes: int = 32 << 10
    max_runs: int = 256


_DEFAULT_POLICY = CopyPolicy()


class _StoredRun:
    """The kept frames of one run of a segment."""

    def __init__(self, store: DocStore, run: int, keep: BoolArray | None, policy: CopyPolicy) -> None:
        self._policy = policy
        self._store = store
        self._run = run
        self._keep = keep
        self._low, self._high = store.run_starts[run : run + 2].tolist()
        offsets = store.frames.offsets
        lengths = np.diff(offsets[self._low : self._high + 1])
        self._lengths: Int64Array = lengths if keep is None else lengths[keep[self._low : self._high]]
        self.n_bytes = int(self._lengths.sum())
        self.path = store.path

    def dictionary(self) -> bytes:
        return self._store.dictionary(self._run)

    def lengths(self) -> Int64Array:
        return self._lengths

    def frames(self) -> Iterator[UInt8Array]:
        return self._store.frames.iterate_kept(self._keep, self._low, self._high)

    def is_copied(self, least: int, budget: int) -> bool:
        """Return whether the run is copied: it has at least `least` bytes and its dictionary is not too large."""
        if self.n_bytes < max(1, least):
            return False
        if self.n_bytes >= self._policy.run_bytes:
            return True
        return self._policy.good_dictionary_bytes <= len(self.dictionary()) <= budget

    def records(self) -> Iterator[bytes]:
        """Yield the kept documents, serialized."""
        if self._keep is None:
            return self._store.records(np.arange(self._low, self._high))
        return self._store.records(np.flatnonzero(self._keep[self._low : self._high]) + self._low)


def merge_documents(
    directory: Directory,
    stores: Sequence[DocStore],
    keeps: Sequence[BoolArray | None],
    container: ContainerWriter,
    policy: CopyPolicy = _DEFAULT_POLICY,
) -> None:
    """Write the documents of several segments as one, in bounded memory.

    Frames that share a dictionary are copied if the dictionary is not too large, see `CopyPolicy`: at most 6 % of
    the frames, or 1 % of the file. Others are compressed again, with the dictionary of a neighbor if there is one.

    Args:
        directory: for temporary files.
        stores: the segments; their documents are concatenated.
        keeps: for each segment (n_docs,) bool, False if a document is left out, or None to keep all.
            Kept documents are renumbered without gaps.
        container: the new file; dictionaries may take a share of what it has so far, so large sections come first.
        policy: which frames are copied.

    Raises:
        FormatError: a segment is damaged.
    """
    runs = [
        _StoredRun(store, run, keep, policy)
        for store, keep in zip(stores, keeps, strict=True)
        for run in range(len(store.run_starts) - 1)
    ]
    with ExitStack() as stack:
        merged: list[FrameRun] = []
        budget = container.n_bytes // policy.file_share // len(runs)
        for known, group in _group_runs(runs, budget, policy):
            if known is None:
                merged += group
            else:
                merged.append(stack.enter_context(closing(_recompress(directory, known, group))))
        write_runs(merged, container)


def _group_runs(
    runs: Sequence[_StoredRun], budget: int, policy: CopyPolicy
) -> Iterator[tuple[bytes | None, list[_StoredRun]]]:
    """Yield groups of consecutive runs with the dictionary to compress them with, or None if they are copied.

    A small group is compressed with the dictionary of a neighbor that is copied, and so becomes part of its run.

    Args:
        runs: all of them.
        budget: maximum size of the dictionary of a small run that is copied.
        policy: which runs are copied.
    """
    least = sum(run.n_bytes for run in runs) // policy.max_runs
    groups = [
        (is_copied, list(group)) for is_copied, group in groupby(runs, lambda run: run.is_copied(least, budget))
    ]
    for number, (is_copied, group) in enumerate(groups):
        if is_copied:
            yield None, group
        elif len(groups) > 1 and sum(run.n_bytes for run in group) < max(least, policy.run_bytes):
            yield (groups[number - 1][1][-1] if number else groups[1][1][0]).dictionary(), group
        else:
            yield max((run.dictionary() for run in group), key=len), group


def _recompress(directory: Directory, known: bytes, runs: Sequence[_StoredRun]) -> DocStoreWriter:
    writer = DocStoreWriter(directory, lambda _: known)
    try:
        for run in runs:
            for record in run.records():
                writer.add_records([record])
                writer.spill()
        writer.dictionary()  # compresses what is buffered
    except zstandard.ZstdError as error:
        writer.close()
        raise CorruptFile("invalid dictionary", path=runs[0].path, actual=str(error)) from error
    except BaseException:
        writer.close()
        raise
    return writer
