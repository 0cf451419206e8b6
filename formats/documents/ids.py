"""The map between a segment's document ordinals and the documents' own ids, both ways.

Sections: ``ids`` (the ids' UTF-8, one after the other, by ordinal), ``id_offsets`` (where each starts),
``id_hashes`` (XXH3-64 of each id, ascending) and ``id_ordinals`` (the ordinal behind each hash).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from quarry.formats.arrays import BoolArray, Int64Array, UInt32Array, UInt64Array
from quarry.formats.container.byte_strings import ByteStrings, merge_byte_strings
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["DocIds", "DocIdsWriter", "id_hash", "merge_ids"]

_UNSORTED = 1024  # hashes that are looked through one by one before they are sorted


def id_hash(doc_id: str) -> int:
    """XXH3-64 of the id's UTF-8; a text that has none, with a lone surrogate, can be looked for all the same."""
    return int(xxhash.xxh3_64_intdigest(doc_id.encode("utf-8", "surrogatepass")))


class DocIdsWriter:
    """Collects ids in ordinal order; memory grows by 8 bytes a document, 28 while it finishes."""

    def __init__(self, directory: Directory) -> None:
        self._ids = Spool(directory)
        self._offsets = Spool(directory)
        self._hashes = bytearray()
        self._sorted = np.empty(0, np.uint32)  # the first documents, in the order of their hashes
        self._offsets.write_array(np.zeros(1, np.uint64))

    def __len__(self) -> int:
        return len(self._hashes) // 8

    def add(self, doc_id: str) -> None:
        """Append the id of the next document."""
        self._ids.append(doc_id.encode("utf-8"))
        self._offsets.append(self._ids.n_bytes.to_bytes(8, "little"))
        self._hashes += id_hash(doc_id).to_bytes(8, "little")

    def settle(self) -> None:
        """See `quarry.formats.container.spool.Spool.settle`."""
        self._ids.settle()
        self._offsets.settle()

    def ordinals_of(self, doc_id: str) -> list[int]:
        """Every ordinal so far that bears the id, ascending."""
        wanted = doc_id.encode("utf-8", "surrogatepass")
        return [ordinal for ordinal in self._with_hash(id_hash(doc_id)) if self._id(ordinal) == wanted]

    def _with_hash(self, wanted: int) -> list[int]:
        """The ordinals of one hash: by bisection in what is sorted, the last ones one by one.

        Sorting anew only when an eighth has been added since keeps the work for each added document bounded.
        """
        hashes, key = np.frombuffer(self._hashes, np.uint64), np.uint64(wanted)
        if len(hashes) - len(self._sorted) > _UNSORTED + len(hashes) // 8:
            self._sorted = np.argsort(hashes, kind="stable").astype(np.uint32)
        low = _bisect(hashes, self._sorted, key)
        found = []
        while low < len(self._sorted) and hashes[self._sorted[low]] == key:
            found.append(int(self._sorted[low]))
            low += 1
        return found + (np.flatnonzero(hashes[len(self._sorted) :] == key) + len(self._sorted)).tolist()

    def superseded(self) -> UInt32Array:
        """Ordinals of documents whose id a later document of this segment bears, ascending."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        order = np.argsort(hashes, kind="stable")
        ranked = hashes[order]
        again = ranked[1:] == ranked[:-1]
        firsts = np.flatnonzero(np.diff(again, prepend=False, append=False)).reshape(-1, 2)
        lost = array("I")
        for low, high in firsts:
            lost.extend(self._all_but_last(order[low : high + 1]))
        return np.sort(np.frombuffer(lost, np.uintc).astype(np.uint32))

    def write(self, container: ContainerWriter) -> None:
        """Write the four sections."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        order = np.argsort(hashes, kind="stable").astype(np.uint32)
        container.add_chunks("ids", np.uint8, (self._ids.n_bytes,), self._ids.chunks())
        container.add_chunks("id_offsets", np.uint64, (len(self) + 1,), self._offsets.chunks())
        container.add("id_hashes", hashes[order])
        container.add("id_ordinals", order)

    def close(self) -> None:
        """Drop the temporary files."""
        self._ids.close()
        self._offsets.close()

    def _id(self, ordinal: int) -> bytes:
        low, high = self._offsets.read_array(np.uint64, ordinal, ordinal + 2).tolist()
        return self._ids.read(low, high - low)

    def _all_but_last(self, ordinals: Int64Array) -> Iterator[int]:
        """Of documents whose ids have one hash, ascending, those whose very id comes again."""
        later: set[bytes] = set()
        for ordinal in map(int, ordinals[::-1]):
            doc_id = self._id(ordinal)
            if doc_id in later:
                yield ordinal
            later.add(doc_id)


class DocIds:
    """The ids of a segment, read from its file."""

    def __init__(self, container: ContainerReader, n_docs: int) -> None:
        self._path = container.path
        self._ids = ByteStrings(container, "ids", "id_offsets", n_docs)
        self._hashes = container.section("id_hashes", np.uint64, (n_docs,))
        self._ordinals = container.section("id_ordinals", np.uint32, (n_docs,))
        self.n_docs = n_docs

    def __getitem__(self, ordinal: int) -> str:
        """The id of document `ordinal`.

        Raises:
            FormatError: the stored id is damaged.
        """
        return self.many(np.array([ordinal]))[0]

    def many(self, ordinals: Int64Array) -> list[str]:
        """The ids of the documents (n,) `ordinals`."""
        try:
            return [doc_id.decode("utf-8") for doc_id in self._ids.many(ordinals)]
        except UnicodeDecodeError as error:
            raise CorruptFile("the id of a document is no UTF-8", path=self._path, actual=str(error)) from error

    def ordinals_of(self, doc_id: str) -> list[int]:
        """Every ordinal that bears the id, ascending: the last one is the live one, if any is."""
        wanted = id_hash(doc_id)
        hashes = self._hashes.array()
        low = int(np.searchsorted(hashes, np.uint64(wanted), side="left"))
        high = int(np.searchsorted(hashes, np.uint64(wanted), side="right"))
        found = self._ordinals.slice(low, high).tolist()
        for ordinal in found:
            if ordinal >= self.n_docs:
                raise CorruptFile("id map names a document that is not there", path=self._path, actual=ordinal)
        return [ordinal for ordinal in found if self[ordinal] == doc_id]

    def by_hash(self) -> tuple[UInt64Array, UInt32Array]:
        """The hashes of all ids, ascending, and (n_docs,) uint32, the document behind each.

        Raises:
            CorruptFile: not every document is behind one of them.
        """
        ordinals = self._ordinals.array().astype(np.uint32, copy=False)
        named = np.zeros(self.n_docs, bool)
        if int(ordinals.max()) < self.n_docs:
            named[ordinals] = True
        if not named.all():
            raise CorruptFile("the id map does not name every document once", path=self._path)
        return self._hashes.array().astype(np.uint64, copy=False), ordinals

    @property
    def strings(self) -> ByteStrings:
        """The ids' UTF-8 by ordinal."""
        return self._ids


def merge_ids(readers: Sequence[DocIds], keeps: Sequence[BoolArray | None], container: ContainerWriter) -> None:
    """Write the ids of several segments as one; memory grows by 36 bytes a document.

    Args:
        readers: the segments; their documents follow one another in the new one.
        keeps: for each segment (n_docs,) bool, False where a document is left out, or None to keep all. Those
            that stay are numbered anew without gaps.
        container: the new file.

    Raises:
        FormatError: a segment is damaged.
    """
    merge_byte_strings([reader.strings for reader in readers], keeps, container, "ids", "id_offsets")
    pieces, first = [], 0
    for reader, keep in zip(readers, keeps, strict=True):
        hashes, ordinals = reader.by_hash()
        if keep is not None:
            stays, numbers = keep[ordinals], np.cumsum(keep, dtype=np.uint32) - np.uint32(1)
            hashes, ordinals = hashes[stays], numbers[ordinals[stays]]
        pieces.append((hashes, ordinals + np.uint32(first)))
        first += len(ordinals)
    hashes, ordinals = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(hashes, kind="stable")
    container.add("id_hashes", hashes[order])
    container.add("id_ordinals", ordinals[order])


def _bisect(hashes: UInt64Array, order: UInt32Array, wanted: np.uint64) -> int:
    """The first place in `order`, which sorts `hashes`, of a hash not below `wanted`."""
    return bisect_left(order, wanted, key=lambda ordinal: hashes[ordinal])
