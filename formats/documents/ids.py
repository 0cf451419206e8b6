"""The ids of the documents of a segment, and the ordinals of an id.

Sections: ``ids`` (UTF-8 of all ids, by ordinal), ``id_offsets`` (their offsets), ``id_hashes`` (XXH3-64 of each
id, ascending) and ``id_ordinals`` (the ordinal of each hash).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xxhash

from quarry.formats.arrays import BoolArray, Int64Array, UInt32Array, UInt64Array
from quarry.formats.container.byte_strings import ByteStrings, merge_byte_strings
from quarry.formats.container.directory import Directory
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile

__all__ = ["DocIds", "DocIdsWriter", "hash_id", "merge_ids"]

_BATCH_IDS = 4096  # read at a time
_UNSORTED = 1024  # hashes that are searched linearly before they are sorted


def hash_id(doc_id: str) -> int:
    """Return XXH3-64 of the id's UTF-8; lone surrogates are allowed, although no document has such an id."""
    return xxhash.xxh3_64_intdigest(doc_id.encode("utf-8", "surrogatepass"))


class DocIdsWriter:
    """Collects ids in ordinal order; takes 8 bytes of memory for each document, 12 while it writes.

    Args:
        directory: for temporary files.
        hash_of: the hash of an id's UTF-8; files have the default.
    """

    def __init__(self, directory: Directory, hash_of: Callable[[bytes], int] = xxhash.xxh3_64_intdigest) -> None:
        self._hash_of = hash_of
        self._sorted_hashes = directory.limits.sorted_hashes
        self._ids = Spool(directory)
        self._offsets = Spool(directory)
        self._hashes = bytearray()
        self._sorted = np.empty(0, np.uint32)  # the first documents, sorted by hash
        self._offsets.write_array(np.zeros(1, np.uint64))

    def __len__(self) -> int:
        return len(self._hashes) // 8

    def __getitem__(self, ordinal: int) -> str:
        """Return the id of a document."""
        return self._read_id(ordinal).decode()

    def add(self, doc_id: str) -> None:
        """Append the id of the next document; see `add_many`."""
        self.add_many([doc_id])

    def add_many(self, ids: Sequence[str]) -> None:
        """Append the ids of the next documents, in memory only; see `spill`."""
        encoded = [doc_id.encode("utf-8") for doc_id in ids]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        hashes = np.fromiter(map(self._hash_of, encoded), np.uint64, len(encoded))
        ends = self._ids.n_bytes + np.cumsum(lengths)
        self._ids.append(b"".join(encoded))
        self._offsets.append(ends.astype(np.uint64).tobytes())
        self._hashes += hashes.tobytes()

    def spill(self) -> None:
        """Write buffered bytes to temporary files if there are many."""
        self._ids.spill()
        self._offsets.spill()

    def ordinals_of(self, doc_id: str) -> list[int]:
        """Return the ordinals of all documents with this id so far, ascending."""
        wanted = doc_id.encode("utf-8", "surrogatepass")
        return [ordinal for ordinal in self._find_hash(self._hash_of(wanted)) if self._read_id(ordinal) == wanted]

    def _find_hash(self, wanted: int) -> list[int]:
        """Return the ordinals of one hash: by bisection in the sorted part, then by linear search in the rest.

        Hashes are sorted again only after an eighth was added, which bounds the work for each added document.
        """
        hashes, key = np.frombuffer(self._hashes, np.uint64), np.uint64(wanted)
        if len(hashes) - len(self._sorted) > _UNSORTED + len(hashes) // 8:
            self._sorted = np.argsort(hashes, kind="stable").astype(np.uint32)
        low = _bisect(hashes, self._sorted, key)
        ordinals = []
        while low < len(self._sorted) and hashes[self._sorted[low]] == key:
            ordinals.append(int(self._sorted[low]))
            low += 1
        return ordinals + (np.flatnonzero(hashes[len(self._sorted) :] == key) + len(self._sorted)).tolist()

    def find_superseded(self) -> UInt32Array:
        """Return the ordinals of documents that a later document with the same id replaces, ascending."""
        hashes, lost = np.frombuffer(self._hashes, np.uint64), array("I")
        for order in _sort_in_parts(hashes, self._sorted_hashes):
            ranked = hashes[order]
            again = ranked[1:] == ranked[:-1]
            firsts = np.flatnonzero(np.diff(again, prepend=False, append=False)).reshape(-1, 2)
            for low, high in firsts:
                lost.extend(self._iterate_superseded(order[low : high + 1]))
        return np.sort(np.frombuffer(lost, np.uintc).astype(np.uint32))

    def write(self, container: ContainerWriter) -> None:
        """Write the four sections."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        parts = [order.astype(np.uint32) for order in _sort_in_parts(hashes, self._sorted_hashes)]
        container.add_chunks("ids", np.uint8, (self._ids.n_bytes,), self._ids.chunks())
        container.add_chunks("id_offsets", np.uint64, (len(self) + 1,), self._offsets.chunks())
        container.add_pieces("id_hashes", np.uint64, (len(self),), (hashes[order] for order in parts))
        container.add_pieces("id_ordinals", np.uint32, (len(self),), parts)

    def close(self) -> None:
        """Delete the temporary files."""
        self._ids.close()
        self._offsets.close()

    def _read_id(self, ordinal: int) -> bytes:
        low, high = self._offsets.read_array(np.uint64, ordinal, ordinal + 2).tolist()
        return self._ids.read(low, high - low)

    def _iterate_superseded(self, ordinals: Int64Array) -> Iterator[int]:
        """Yield the documents that a later one with the same id replaces; all ids have one hash."""
        later: set[bytes] = set()
        for ordinal in map(int, ordinals[::-1]):
            doc_id = self._read_id(ordinal)
            if doc_id in later:
                yield ordinal
            later.add(doc_id)


class DocIds:
    """Reads the ids of a segment.

    Attributes:
        n_docs: documents in the segment, deleted ones included.
        strings: the UTF-8 of the ids, by ordinal.
    """

    def __init__(
        self, container: ContainerReader, n_docs: int, hash_of: Callable[[bytes], int] = xxhash.xxh3_64_intdigest
    ) -> None:
        self._hash_of = hash_of
        self._path = container.path
        self.strings = ByteStrings(container, "ids", "id_offsets", n_docs)
        self._hashes = container.section("id_hashes", np.uint64, (n_docs,))
        self._ordinals = container.section("id_ordinals", np.uint32, (n_docs,))
        self.n_docs = n_docs

    def __getitem__(self, ordinal: int) -> str:
        """Return the id of document `ordinal`.

        Raises:
            FormatError: the stored id is damaged.
        """
        return self.many(np.array([ordinal]))[0]

    def many(self, ordinals: Int64Array) -> list[str]:
        """Return the ids of the documents (n,) `ordinals`."""
        try:
            return [doc_id.decode("utf-8") for doc_id in self.strings.many(ordinals)]
        except UnicodeDecodeError as error:
            raise CorruptFile("the id of a document is not UTF-8", path=self._path, actual=str(error)) from error

    def read(self, ordinals: Int64Array) -> Iterator[str]:
        """Yield the ids of the documents (n,) `ordinals`, in bounded memory."""
        for low in range(0, len(ordinals), _BATCH_IDS):
            yield from self.many(ordinals[low : low + _BATCH_IDS])

    def ordinals_of(self, doc_id: str) -> list[int]:
        """Return the ordinals of all documents with this id, ascending; only the last one can be live."""
        wanted = self._hash_of(doc_id.encode("utf-8", "surrogatepass"))
        hashes = self._hashes.array()
        low = int(np.searchsorted(hashes, np.uint64(wanted), side="left"))
        high = int(np.searchsorted(hashes, np.uint64(wanted), side="right"))
        ordinals = self._ordinals.slice(low, high).tolist()
        for ordinal in ordinals:
            if ordinal >= self.n_docs:
                raise CorruptFile(
                    "the id map contains an ordinal that is out of bounds", path=self._path, actual=ordinal
                )
        return [ordinal for ordinal in ordinals if self[ordinal] == doc_id]

    def by_hash(self, low: int, high: int) -> tuple[UInt64Array, Int64Array]:
        """Return hashes and ordinals of the documents at the places low to high - 1 in the order of their hashes.

        Raises:
            CorruptFile: an ordinal is out of bounds.
        """
        ordinals = self._ordinals.slice(low, high).astype(np.int64)
        if len(ordinals) and int(ordinals.max()) >= self.n_docs:
            raise CorruptFile("the id map contains an ordinal that is out of bounds", path=self._path)
        return self._hashes.slice(low, high).astype(np.uint64), ordinals

    def sorted_hashes(self) -> tuple[UInt64Array, UInt32Array]:
        """Return the hashes of all ids, ascending, and (n_docs,) uint32, the ordinal of each.

        Raises:
            CorruptFile: the id map does not contain every document once.
        """
        ordinals = self._ordinals.array().astype(np.uint32, copy=False)
        named = np.zeros(self.n_docs, bool)
        if int(ordinals.max()) < self.n_docs:
            named[ordinals] = True
        if not named.all():
            raise CorruptFile("the id map does not contain every document once", path=self._path)
        return self._hashes.array().astype(np.uint64, copy=False), ordinals


def merge_ids(readers: Sequence[DocIds], keeps: Sequence[BoolArray | None], container: ContainerWriter) -> None:
    """Write the ids of several segments as one; takes 36 bytes of memory for each document.

    Args:
        readers: the segments; their documents are concatenated.
        keeps: for each segment (n_docs,) bool, False if a document is left out, or None to keep all.
            Kept documents are renumbered without gaps.
        container: the new file.

    Raises:
        FormatError: a segment is damaged.
    """
    merge_byte_strings([reader.strings for reader in readers], keeps, container, "ids", "id_offsets")
    pieces, first = [], 0
    for reader, keep in zip(readers, keeps, strict=True):
        hashes, ordinals = reader.sorted_hashes()
        if keep is not None:
            stays, numbers = keep[ordinals], np.cumsum(keep, dtype=np.uint32) - np.uint32(1)
            hashes, ordinals = hashes[stays], numbers[ordinals[stays]]
        pieces.append((hashes, ordinals + np.uint32(first)))
        first += len(ordinals)
    hashes, ordinals = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(hashes, kind="stable")
    container.add("id_hashes", hashes[order])
    container.add("id_ordinals", ordinals[order])


def _sort_in_parts(hashes: UInt64Array, n_at_once: int) -> Iterator[Int64Array]:
    """Yield the order that sorts hashes, equal ones by ordinal, in parts; equal hashes are in one part."""
    bits = (len(hashes) // n_at_once).bit_length()
    if not bits:
        yield np.argsort(hashes, kind="stable")
        return
    parts = np.empty(len(hashes), np.uint8 if bits <= 8 else np.uint16)
    np.right_shift(hashes, np.uint64(64 - bits), out=parts, casting="unsafe")
    for number in range(1 << bits):
        ordinals = np.flatnonzero(parts == number)
        yield ordinals[np.argsort(hashes[ordinals], kind="stable")]


def _bisect(hashes: UInt64Array, order: UInt32Array, wanted: np.uint64) -> int:
    """Return the first position in `order`, which sorts `hashes`, of a hash that is not below `wanted`."""
    return bisect_left(order, wanted, key=lambda ordinal: hashes[ordinal])
