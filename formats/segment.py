"""The segment file: a batch of documents with ids, texts, postings, metadata, centroids and inverted lists.

A segment is written once and never changed. `SegmentWriter` collects documents in order, `SegmentReader` gives
access to the parts of a finished file.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

import numpy as np

from quarry.formats.arrays import Float32Array, Int64Array, UInt32Array
from quarry.formats.container.background import StartWork, work_at_once
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import PASSAGES_FEATURE, FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.documents.ids import DocIds, DocIdsWriter
from quarry.formats.documents.passages import PassagesWriter, PassageTable
from quarry.formats.documents.store import DocStore, DocStoreWriter, KnownDictionary, StoredDocument
from quarry.formats.errors import CommitFailed, CorruptFile, InvalidDocument
from quarry.formats.metadata.columns import MetadataReader, MetadataWriter
from quarry.formats.postings.postings import PostingsReader, PostingsWriter
from quarry.formats.vectors.centroids import CENTROID_TYPES, CentroidsWriter, CentroidTable, RoundedRows
from quarry.formats.vectors.inverted_lists import InvertedLists, InvertedListsWriter
from quarry.formats.vectors.quantizer import MAX_DIM, MAX_NLIST, QuantizationError

__all__ = ["MAX_ROWS", "SEGMENT_PARTS", "SegmentReader", "SegmentWriter", "new_segment", "segment_fields"]

_NORM_MARGIN = 1 + 1e-5  # for rounding errors of the norm
_MAX_NORM = 1e30  # of a vector; larger numbers are damage
MAX_ROWS = (1 << 32) - 1  # a row's ordinal takes 32 bits in the inverted lists
SEGMENT_PARTS = ("centroids", "codes", "documents", "ids", "metadata", "postings")
"""The parts of a segment file, see `SegmentReader.part_bytes`."""

T = TypeVar("T")


class SegmentWriter:
    """Collects documents and writes them as one segment file.

    Documents are added in memory, so that no I/O error can occur; `spill` writes them to temporary files. If
    `spill` or `finish` fails, no document is lost: both can be called again, and documents can be added.

    Args:
        directory: the folder of the index.
        dim: length of a vector.
        centroid_type: how centroids are stored until `finish`: "int8" or "float16".
        known: see `quarry.formats.documents.store.DocStoreWriter`.
        start: starts work that other threads may do: compression.
    """

    def __init__(
        self,
        directory: Directory,
        dim: int,
        centroid_type: str,
        known: KnownDictionary = lambda _: b"",
        start: StartWork = work_at_once,
    ) -> None:
        self._directory = directory
        self.ids = DocIdsWriter(directory)
        self.documents = DocStoreWriter(directory, known, start)
        self.centroids = CentroidsWriter(directory, dim, centroid_type)
        self.postings = PostingsWriter(directory)
        self.metadata = MetadataWriter(directory)
        self.passages = PassagesWriter(directory)
        self._is_consistent = True

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, doc_id: str, document: StoredDocument, vectors: Float32Array, terms: Sequence[str] = ()) -> None:
        """Append a document with its (n, dim) float32 centroids, n >= 1, and its terms; see `add_many`."""
        rows = RoundedRows.of(vectors, self.centroids.kind)
        self.add_many([doc_id], [document], rows, np.array([len(vectors)]), [terms])

    def add_many(
        self,
        ids: Sequence[str],
        documents: Sequence[StoredDocument],
        rows: RoundedRows,
        counts: Int64Array,
        terms: Sequence[Sequence[str]],
        passages: tuple[Int64Array, UInt32Array] | None = None,
    ) -> None:
        """Append documents.

        Args:
            ids: the ids of the documents.
            documents: what is stored of them.
            rows: the centroids of all of them, in order, rounded to the type of this segment.
            counts: (n_passages,) int64, how many centroids each passage has, 1 at least.
            terms: for each passage its terms, in any order.
            passages: see `quarry.formats.documents.passages.PassagesWriter.add_many`; None: every document is one.

        Raises:
            InvalidDocument: the norm of a vector is too large to be stored; no document was added.
        """
        if self.centroids.n_rows + len(rows) > MAX_ROWS:
            raise OverflowError(f"a segment holds at most {MAX_ROWS} centroids")
        try:
            self.centroids.add_many(rows, counts)
            self.documents.add_many(documents)
            self.postings.add_many(terms)
            self.metadata.add_many([document.metadata for document in documents])
            if passages is None:
                passages = np.ones(len(ids), np.int64), np.zeros((len(ids), 2), np.uint32)
            self.passages.add_many(*passages)
            self.ids.add_many(ids)
        except InvalidDocument as error:  # raised before anything was added
            name = f"document {ids[0]!r}" if len(ids) == 1 else f"one of {len(ids)} documents from {ids[0]!r} on"
            raise InvalidDocument(f"{name}: {error.message}", actual=error.actual) from error
        except BaseException:  # for example an interrupt: parts of the documents may have been added
            self._is_consistent = False
            raise

    def spill(self) -> None:
        """Write buffered documents to temporary files if they exceed the limits; call it every few documents.

        Raises:
            OSError: an I/O error occurred; no document is lost.
        """
        for part in (self.ids, self.documents, self.centroids, self.postings, self.metadata, self.passages):
            part.spill()

    def finish(
        self,
        lists: InvertedListsWriter | None,
        nlist: int,
        code_bytes: int,
        keep_centroids: bool,
        fit: QuantizationError | None = None,
    ) -> FileRecord:
        """Write and sync the file.

        Args:
            lists: the inverted lists of all rows, or None for a segment that is searched exhaustively.
            nlist: number of lists, 0 without.
            code_bytes: bytes of a code, 0 without lists.
            keep_centroids: whether the centroids themselves are stored, not only their codes.
            fit: quantization error of the rows in the lists, if known.

        Raises:
            CommitFailed: an `add` was interrupted.
        """
        if not self._is_consistent:
            raise CommitFailed("adding a document was interrupted", path=self._directory.path)
        n_passages = self.passages.n_passages
        with new_segment(self._directory, is_divided=n_passages != len(self)) as container:
            self.centroids.write(container, keep_centroids)
            if lists:
                lists.write(container)
            self.ids.write(container)
            self.postings.write(container)
            self.metadata.write(container)
            self.documents.write(container)
            self.passages.write(container)
            return container.finish(
                segment_fields(
                    n_docs=len(self),
                    n_passages=n_passages,
                    n_rows=self.centroids.n_rows,
                    dim=self.centroids.dim,
                    largest_norm=self.centroids.largest_norm * _NORM_MARGIN,
                    centroids=self.centroids.kind if keep_centroids else "none",
                    nlist=nlist,
                    code_bytes=code_bytes,
                    fit=fit,
                )
            )

    def close(self) -> None:
        """Delete the temporary files."""
        self.ids.close()
        self.documents.close()
        self.centroids.close()
        self.postings.close()
        self.metadata.close()
        self.passages.close()


@contextlib.contextmanager
def new_segment(directory: Directory, *, is_divided: bool) -> Iterator[ContainerWriter]:
    """Create the file of a new segment, with a random id; it is deleted at the end unless it was finished.

    Args:
        directory: the folder of the index.
        is_divided: whether a document has several passages, which readers must support.
    """
    segment_id = secrets.token_bytes(16)
    features = PASSAGES_FEATURE if is_divided else 0
    container = ContainerWriter(
        directory, f"{segment_id.hex()}.seg", FileKind.SEGMENT, segment_id, required_features=features
    )
    try:
        yield container
    finally:
        container.discard()


def segment_fields(  # noqa: PLR0913  # the fields of the file
    *,
    n_docs: int,
    n_passages: int,
    n_rows: int,
    dim: int,
    largest_norm: float,
    centroids: str,
    nlist: int,
    code_bytes: int,
    fit: QuantizationError | None,
) -> dict[str, object]:
    """Return the fields of a segment file (see SPEC.md, section 5)."""
    divided = {} if n_passages == n_docs else {"n_passages": n_passages}
    return divided | {
        "n_docs": n_docs,
        "n_rows": n_rows,
        "dim": dim,
        "largest_norm": largest_norm,
        "centroids": centroids,
        "nlist": nlist,
        "code_bytes": code_bytes,
        "fit": asdict(fit) if fit else None,
    }


class SegmentReader:
    """An open segment file.

    Attributes:
        n_docs: documents in it, deleted ones included.
        n_rows: centroids in it.
        ids: ids of the documents.
        documents: stored documents.
        passages: which passages belong to each document; postings and centroids are those of passages.
        postings: the terms of the passages.
        metadata: columns of their metadata.
        centroids: the vectors.
        lists: the inverted lists, or None.
        fit: quantization error of their rows; None: not recorded.
        path: the path of the file.
    """

    def __init__(self, directory: Directory, record: FileRecord, dim: int) -> None:
        self._container = ContainerReader(directory, record.name, FileKind.SEGMENT, record)
        self.path = self._container.path
        self._holders: weakref.WeakSet[object] = weakref.WeakSet()
        self._holding = threading.RLock()  # not shared with other readers: a forked child opens the file again
        self._is_open = True
        self._sections: dict[str, frozenset[str]] = {}
        try:
            self._read(dim)
        except BaseException:
            self.close()
            raise

    def _read(self, dim: int) -> None:
        container, fields = self._container, self._container.fields
        self.n_docs = fields.integer("n_docs", 1, MAX_ROWS)
        n_passages = self.n_docs
        if container.required_features & PASSAGES_FEATURE:
            n_passages = fields.integer("n_passages", self.n_docs + 1, MAX_ROWS)
        self.n_rows = fields.integer("n_rows", n_passages, MAX_ROWS)
        if fields.integer("dim", 1, MAX_DIM) != dim:
            raise CorruptFile("wrong number of dimensions", path=container.path, expected=dim)
        largest_norm = fields.number("largest_norm", 0.0, _MAX_NORM)
        kind = fields.choice("centroids", CENTROID_TYPES)
        nlist = fields.integer("nlist", 0, MAX_NLIST)
        code_bytes = fields.integer("code_bytes", 0, MAX_DIM)
        self.fit = QuantizationError.from_fields(fields.optional_child("fit"))
        if (nlist == 0) != (code_bytes == 0) or (kind == "none" and not nlist):
            raise CorruptFile("nlist, code_bytes and centroids contradict one another", path=container.path)
        n_docs, n_rows = self.n_docs, self.n_rows
        self.ids = self._read_part("ids", lambda: DocIds(container, n_docs))
        self.documents = self._read_part("documents", lambda: DocStore(container, n_docs))
        self.passages = self._read_part("documents", lambda: PassageTable(container, n_docs, n_passages))
        self.postings = self._read_part("postings", lambda: PostingsReader(container, n_passages))
        self.metadata = self._read_part("metadata", lambda: MetadataReader(container, n_docs))
        self.centroids = self._read_part(
            "centroids", lambda: CentroidTable(container, n_passages, n_rows, dim, kind, largest_norm)
        )
        self.lists = (
            self._read_part("codes", lambda: InvertedLists(container, nlist, n_rows, code_bytes))
            if nlist
            else None
        )
        container.refuse_unknown()

    def _read_part(self, name: str, read: Callable[[], T]) -> T:
        """Read a part of the file, and record the names of its sections."""
        before = self._container.sections_read
        part = read()
        self._sections[name] = self._sections.get(name, frozenset()) | self._container.sections_read - before
        return part

    @property
    def segment_id(self) -> bytes:
        """The 16 bytes that identify the segment."""
        return self._container.record.file_id

    def section_bytes(self) -> dict[str, int]:
        """Return the size of every section of the file, by name."""
        return self._container.section_bytes()

    def part_bytes(self) -> dict[str, int]:
        """Return the size of each of `SEGMENT_PARTS` that the file has; unknown sections are in none of them."""
        sizes = self.section_bytes()
        return {part: sum(sizes.get(name, 0) for name in names) for part, names in self._sections.items()}

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self._container.n_bytes

    def acquire(self, holder: object) -> bool:
        """Keep the file open until `holder` releases it or is collected; return False if it is closed already."""
        with self._holding:
            self._holders.add(holder)
            return self._is_open

    def release(self, holder: object) -> None:
        """Close the file if no other holder is left."""
        with self._holding:
            self._holders.discard(holder)
            if not self._holders:
                self.close()

    def close(self) -> None:
        """Close the file; arrays from it stay valid."""
        self._is_open = False
        self._container.close()
