"""An open index: wires snapshot, searcher, encoder and writer together, and holds no algorithm."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, overload

import numpy as np
import numpy.typing as npt

from engine.backends.registry import check_backend
from engine.document_reader import DocumentSource, read_documents
from engine.documents import Document
from engine.encoder import Encoder, open_encoder
from engine.explanation import matches
from engine.hits import Hit, Match
from engine.index_writer import IndexWriter
from engine.options import OpenOptions, SearchOptions
from engine.query_vectors import Vectors, check_vectors, query_vectors
from engine.searcher import Found, Searcher
from engine.statistics import index_statistics
from formats.directory import Directory
from formats.doc_store import StoredDocument
from formats.errors import EncoderMismatch, FormatError, IndexClosed, InvalidQuery, ReadOnlyIndex
from formats.manifest import EncoderRecord, Manifest, latest_generation
from formats.snapshot import Snapshot, check_files

__all__ = ["Engine", "VerifyReport"]


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """What `Engine.verify` read, all of it sound.

    Attributes:
        n_files: files of the index.
        n_bytes: their length together.
        n_documents: documents that can be found.
    """

    n_files: int
    n_bytes: int
    n_documents: int


class Engine:
    """An open index. Made by `Engine.open`; a context manager.

    It answers from the generation it opened until `refresh` or its own `commit`. Any number of threads may
    search it at once; one at a time may write. A forked child must open its own.
    """

    def __init__(self, directory: Directory, options: OpenOptions, encoder: Encoder, writable: bool) -> None:
        self._directory = directory
        self._options = options
        self._encoder = encoder
        self._writable = writable
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state: _State | None = _State(directory, options)
        self._writer: IndexWriter | None = None
        if writable:
            self._writer = IndexWriter(directory, encoder, options.n_threads)
            self.refresh()  # another writer may have committed before the lock was ours

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        writable: bool = False,
        backend: str = "auto",
        encoder: str | Path | Encoder | None = None,
        threads: int | None = None,
    ) -> Engine:
        """Open an index. The encoder's model is loaded at the first text.

        Args:
            path: the folder of the index.
            writable: whether to add and delete; takes the write lock.
            backend: "auto", "exact" (numpy, slow, the reference), "scan" (SIMD over all centroids) or
                "cpu_faiss" (IVF lists where the index has them).
            encoder: the one the index was built with: a bundle's folder, an `Encoder`, or None for the bundled
                default. An index of another encoder's vectors can be opened without it, and searched with
                `search_vectors`.
            threads: for batches of queries and for encoding; None: one for each CPU this process may use.

        Raises:
            IndexNotFound: there is no index.
            IndexLocked: `writable`, and there is another writer.
            EncoderMismatch: an encoder was given, and the vectors are another's.
            FormatError: a file of the index is damaged.
        """
        check_backend(backend)
        index = cls(
            Directory(Path(path)),
            OpenOptions(backend=backend, threads=threads),
            open_encoder(encoder),
            writable,
        )
        try:
            if encoder is not None or writable:
                index._check_encoder()
        except BaseException:
            index.close()
            raise
        return index

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self,
        queries: str,
        k: int = ...,
        *,
        candidates: int | None = ...,
        nprobe: int | None = ...,
        explain: bool = ...,
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        queries: Sequence[str],
        k: int = ...,
        *,
        candidates: int | None = ...,
        nprobe: int | None = ...,
        explain: bool = ...,
    ) -> list[list[Hit]]: ...

    def search(
        self,
        queries: str | Sequence[str],
        k: int = 10,
        *,
        candidates: int | None = None,
        nprobe: int | None = None,
        explain: bool = False,
    ) -> list[Hit] | list[list[Hit]]:
        """Find the documents that answer a text, best first.

        Args:
            queries: one text, or several.
            k: how many hits; fewer come back only where the index holds fewer documents.
            candidates: documents that stage 2 rescores; see `engine.options.SearchOptions`.
            nprobe: inverted lists that stage 1 reads; see there.
            explain: whether hits say which parts of their text matched.

        Returns:
            The hits of the text, or for several texts a list of hits for each.

        Raises:
            InvalidQuery: a query is no text, has no token, or the encoder gives no usable vector for it.
            InvalidSetting: an option is out of range.
            EncoderMismatch: the index holds vectors of another encoder.
        """
        options = SearchOptions(k=k, candidates=candidates, nprobe=nprobe, explain=explain)
        texts = [queries] if isinstance(queries, str) else _sequence(queries)
        state = self._check_encoder()
        vectors = np.empty((len(texts), self._encoder.dim), np.float32)
        for number, text in enumerate(texts):
            vectors[number] = self._encode(text, number)
        found = state.search(vectors, options)
        return found[0] if isinstance(queries, str) else found

    def search_vectors(
        self,
        queries: npt.ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        nprobe: int | None = None,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """Find documents for (n, dim) query vectors, converted to float32; see `search`.

        Raises:
            InvalidQuery: no numbers, the wrong shape, or numbers that are not finite or above 1e18.
        """
        options = SearchOptions(k=k, candidates=candidates, nprobe=nprobe, explain=explain)
        state = self._current()
        return state.search(query_vectors(queries, state.snapshot.manifest.settings.dim), options)

    def add(self, docs: DocumentSource) -> int:
        """Collect documents for the next commit; one whose id exists replaces it. Returns how many.

        Raises:
            InvalidDocument: a document is not valid; those before it stay collected until `rollback`.
            CommitFailed: the system failed; nothing is collected any more, and nothing can be until a new open.
            ReadOnlyIndex: the index was not opened writable.
        """
        return self._require_writer().add(read_documents(docs))

    def delete(self, ids: Iterable[str] | str) -> int:
        """Delete documents at the next commit. Returns how many of the ids there were."""
        return self._require_writer().delete(_possible(ids))

    def commit(self) -> int:
        """Make all additions and deletions visible, durably, in one step. Returns the generation.

        Raises:
            CommitFailed: nothing was committed.
            DurabilityUnknown: committed, but perhaps not for good.
        """
        generation, _ = self._require_writer().commit()
        self.refresh()
        return generation

    def rollback(self) -> None:
        """Forget additions and deletions since the last commit."""
        self._require_writer().rollback()

    def refresh(self) -> bool:
        """Answer from the newest generation from now on. Returns whether there was a newer one."""
        self._current()
        with self._lock:
            before = self._current()
            if latest_generation(self._directory) == before.snapshot.manifest.generation:
                return False
            self._state = _State(self._directory, self._options)
        return True

    def get(self, ids: Iterable[str] | str) -> list[Document]:
        """The documents of these ids, in their order; ids that are not there are passed over."""
        snapshot = self._current().snapshot
        documents = []
        for doc_id in _possible(ids):
            place = snapshot.find(doc_id)
            if place:
                stored = place[0].reader.documents[place[1]]
                documents.append(Document(doc_id, stored.text, stored.title, stored.metadata))
        return documents

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self._current().snapshot.find(doc_id) is not None

    def __len__(self) -> int:
        return len(self._current().snapshot)

    def stats(self) -> dict[str, object]:
        """Numbers about the index: documents, centroids, and bytes by part. See `engine.statistics`."""
        return index_statistics(self._current().snapshot)

    def verify(self) -> VerifyReport:
        """Read every byte of the generation that is open, or if its files are gone of the newest.

        Raises:
            FormatError: something is wrong; the message lists everything that is, `findings` holds the errors.
        """
        manifest = self._current().snapshot.manifest
        findings = check_files(self._directory, manifest)
        while findings and latest_generation(self._directory) != manifest.generation:  # a commit came between
            manifest = Manifest.load(self._directory, latest_generation(self._directory))
            findings = check_files(self._directory, manifest)
        if findings:
            error = FormatError(
                f"{len(findings)} damages:\n" + "\n".join(map(str, findings)), path=self._directory.path
            )
            error.findings = tuple(findings)
            raise error
        names = manifest.file_names()
        n_bytes = sum((self._directory.path / name).stat().st_size for name in names)
        n_documents = sum(segment.n_docs - segment.n_deleted for segment in manifest.segments)
        return VerifyReport(n_files=len(names), n_bytes=n_bytes, n_documents=n_documents)

    def close(self) -> None:
        """Close all files and release the lock; hits stay valid, and closing twice is harmless."""
        writer, self._writer = self._writer, None
        if writer:
            writer.close()
        with self._lock:
            state, self._state = self._state, None
        if state:
            state.snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _current(self) -> _State:
        state = self._state
        if state is None:
            raise IndexClosed("the index is closed", path=self._directory.path)
        if os.getpid() != self._pid:
            raise IndexClosed(
                "the index was opened by another process; open it again after a fork",
                path=self._directory.path,
            )
        return state

    def _require_writer(self) -> IndexWriter:
        self._current()
        if self._writer is None:
            raise ReadOnlyIndex(
                "the index was opened for reading; open it with writable=True", path=self._directory.path
            )
        return self._writer

    def _check_encoder(self) -> _State:
        """What is open, whose vectors must be this encoder's."""
        state = self._current()
        made: EncoderRecord = state.snapshot.manifest.encoder
        if made.identity != self._encoder.identity:
            raise EncoderMismatch(
                "the vectors of this index are another encoder's; open it with encoder=...",
                path=self._directory.path,
                expected=f"{made.name} ({made.identity})",
                actual=f"{self._encoder.name} ({self._encoder.identity})",
            )
        return state

    def _encode(self, text: object, number: int) -> Vectors:
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is no text", expected="str", actual=type(text).__name__)
        try:
            vector = self._encoder.encode_query(text)
        except InvalidQuery as error:
            raise InvalidQuery(
                f"query {number}: {error.message}", expected=error.expected, actual=error.actual
            ) from error
        if vector.shape != (self._encoder.dim,):
            raise InvalidQuery(
                f"query {number}: the encoder gave no usable vector",
                expected=f"shape ({self._encoder.dim},)",
                actual=vector.shape,
            )
        return vector


class _State:
    """What changes together at a refresh: a snapshot and the searcher over it."""

    def __init__(self, directory: Directory, options: OpenOptions) -> None:
        self.snapshot = Snapshot(directory)
        self._segments = self.snapshot.segments  # what is being searched stays, even if the snapshot is closed
        self._searcher = Searcher(self.snapshot, options)

    def search(self, vectors: Vectors, options: SearchOptions) -> list[list[Hit]]:
        """The hits for each of (n, dim) query vectors."""
        check_vectors(vectors)
        answers = self._searcher.search(vectors, options)
        return [
            self._hits(answer, query if options.explain else None)
            for query, answer in zip(vectors, answers, strict=True)
        ]

    def _hits(self, answer: list[Found], query: Vectors | None) -> list[Hit]:
        """The hits for documents found, in their order; explained where the query is given."""
        hits: dict[Found, Hit] = {}
        for number, segment in enumerate(self._segments):
            found = [each for each in answer if each.segment == number]
            docs = np.array([each.doc for each in found], np.int64)
            packed = zip(found, segment.reader.ids.many(docs), segment.reader.documents.packed(docs), strict=True)
            for each, doc_id, document in packed:
                matched = () if query is None else self._matches(each, document.unpacked(), query)
                hits[each] = Hit(doc_id, each.score, document, matched)
        return [hits[each] for each in answer]

    def _matches(self, found: Found, stored: StoredDocument, query: Vectors) -> tuple[Match, ...]:
        scores = self._searcher.centroid_scores(query, found)
        path = self._segments[found.segment].reader.path
        return matches(stored, scores, self.snapshot.manifest.settings.beta, path)


def _sequence(queries: object) -> list[object]:
    if not isinstance(queries, Iterable):
        raise InvalidQuery("no text to search for", expected="a str or several", actual=type(queries).__name__)
    return list(queries)


def _possible(ids: Iterable[str] | str) -> Iterator[str]:
    """Those of `ids` that a document can have."""
    for doc_id in [ids] if isinstance(ids, str) else ids:
        if isinstance(doc_id, str):
            yield doc_id
