"""The texts of several segments as one: most of them are copied as they are, still compressed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import groupby

import numpy as np
import numpy.typing as npt
import zstandard

from quarry.formats.container.directory import Directory
from quarry.formats.container.envelope import EnvelopeWriter
from quarry.formats.documents.store import DocStore, DocStoreWriter
from quarry.formats.documents.store_sections import FrameRun, write_runs
from quarry.formats.errors import CorruptFile

__all__ = ["merge_documents"]

_COPIED_BYTES = 1 << 20  # frames of one dictionary from which on it is kept: then it takes 6 % of them at most
_FILE_SHARE = 128  # of which all dictionaries may take one, however few their frames are
_GOOD_DICTIONARY = 32 << 10  # bytes from which on it compresses within 4 % as well as a larger one
_MOST_COPIED = 256  # runs: each has a dictionary in memory once one of its documents was read

Keep = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class _StoredRun:
    """What stays of a run of a segment that is there."""

    def __init__(self, store: DocStore, run: int, keep: Keep | None) -> None:
        self._store = store
        self._run = run
        self._keep = keep
        self._low, self._high = store.run_starts[run : run + 2].tolist()
        offsets = store.frames.offsets
        lengths = np.diff(offsets[self._low : self._high + 1])
        self._lengths: Ints = lengths if keep is None else lengths[keep[self._low : self._high]]
        self.n_bytes = int(self._lengths.sum())
        self.path = store.path

    def dictionary(self) -> bytes:
        return self._store.dictionary(self._run)

    def lengths(self) -> Ints:
        return self._lengths

    def frames(self) -> Iterator[npt.NDArray[np.uint8]]:
        return self._store.frames.kept(self._keep, self._low, self._high)

    def is_copied(self, least: int, room: int) -> bool:
        """Whether it stays as it is: if it has `least` bytes, and a dictionary that does not take too much."""
        if self.n_bytes < max(1, least):
            return False
        return self.n_bytes >= _COPIED_BYTES or _GOOD_DICTIONARY <= len(self.dictionary()) <= room

    def records(self) -> Iterator[bytes]:
        """The documents that stay, as they were serialised."""
        if self._keep is None:
            return self._store.records(np.arange(self._low, self._high))
        return self._store.records(np.flatnonzero(self._keep[self._low : self._high]) + self._low)


def merge_documents(
    directory: Directory, stores: Sequence[DocStore], keeps: Sequence[Keep | None], envelope: EnvelopeWriter
) -> None:
    """Write the documents of several segments as one, in bounded memory.

    Frames that share a dictionary are copied as they are, where that does not take too much room for dictionaries:
    6 % of the frames, or 1 % of the file. Fewer are compressed anew, with the dictionary of their neighbours
    where there is one.

    Args:
        directory: where temporary files go.
        stores: the segments; their documents follow one another in the new one.
        keeps: for each segment (n_docs,) bool, False where a document is left out, or None to keep all. Those
            that stay are numbered anew without gaps.
        envelope: the new file, best with all bulky sections written.

    Raises:
        FormatError: a segment is damaged.
    """
    runs = [
        _StoredRun(store, run, keep)
        for store, keep in zip(stores, keeps, strict=True)
        for run in range(len(store.run_starts) - 1)
    ]
    with ExitStack() as stack:
        merged: list[FrameRun] = []
        room = envelope.n_bytes // _FILE_SHARE // len(runs)
        for known, group in _groups(runs, room):
            if known is None:
                merged += group
            else:
                merged.append(stack.enter_context(closing(_compressed_anew(directory, known, group))))
        write_runs(merged, envelope)


def _groups(runs: Sequence[_StoredRun], room: int) -> Iterator[tuple[bytes | None, list[_StoredRun]]]:
    """Runs in a row: those to be copied, with None; those to be compressed, with a dictionary that is known.

    Where the latter are few they get that of a neighbour which is copied, and so become part of its run.

    Args:
        runs: all of them.
        room: bytes that each may take for its dictionary in any case.
    """
    least = sum(run.n_bytes for run in runs) // _MOST_COPIED
    groups = [
        (is_copied, list(group)) for is_copied, group in groupby(runs, lambda run: run.is_copied(least, room))
    ]
    for number, (is_copied, group) in enumerate(groups):
        if is_copied:
            yield None, group
        elif len(groups) > 1 and sum(run.n_bytes for run in group) < max(least, _COPIED_BYTES):
            yield (groups[number - 1][1][-1] if number else groups[1][1][0]).dictionary(), group
        else:
            yield max((run.dictionary() for run in group), key=len), group


def _compressed_anew(directory: Directory, known: bytes, runs: Sequence[_StoredRun]) -> DocStoreWriter:
    writer = DocStoreWriter(directory, lambda _: known)
    try:
        for run in runs:
            for record in run.records():
                writer.add_record(record)
                writer.settle()
        writer.dictionary()  # from here on all is compressed
    except zstandard.ZstdError as error:
        writer.close()
        raise CorruptFile("no usable dictionary", path=runs[0].path, actual=str(error)) from error
    except BaseException:
        writer.close()
        raise
    return writer
