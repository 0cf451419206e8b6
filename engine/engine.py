"""An open index: wires snapshot, searcher, encoder and writer together, and holds no algorithm."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import NoReturn, Self, Unpack, overload

import numpy.typing as npt

from quarry.engine.arguments import checked_flag
from quarry.engine.backends.registry import check_backend
from quarry.engine.documents.document import Document
from quarry.engine.documents.id_list import checked_id, id_list
from quarry.engine.documents.reader import DocumentSource, read_documents
from quarry.engine.encoding.encoder import Encoder, open_encoder
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.gpu.device import Device
from quarry.engine.index.current_view import CurrentView
from quarry.engine.index.memory import memory_bytes
from quarry.engine.index.statistics import index_statistics
from quarry.engine.index.verification import VerifyReport, verify_index
from quarry.engine.index.view import IndexView
from quarry.engine.indexer.graphs import drop_graphs, write_graphs
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.merge_policy import MergePolicy
from quarry.engine.options import OpenOptions, SearchKeywords, SearchOptions
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.scoring.query_vectors import query_vectors
from quarry.engine.search.hits import Hits
from quarry.engine.search.queries import encode_queries, query_texts
from quarry.engine.search.reranker import Reranker, open_reranker, reranked
from quarry.formats.container.directory import Directory
from quarry.formats.errors import EncoderMismatch, IndexClosed, InvalidSetting, ReadOnlyIndex
from quarry.formats.manifest import EncoderRecord
from quarry.formats.system_errors import checked_path

__all__ = ["Engine"]

_log = logging.getLogger(__name__)


class Engine:
    """An open index. Made by `Engine.open`; a context manager.

    Once it is closed, and in a forked child, every method but `close` raises `IndexClosed`.

    It answers from the generation it opened until `refresh` or its own `commit`. Any number of threads may
    search it at once, and several may write: a commit takes what all of them have added by then. A forked child
    must open its own.
    """

    def __init__(
        self, directory: Directory, options: OpenOptions, device: Device, encoder: Encoder, writable: bool
    ) -> None:
        self._directory = directory
        self._options = options
        self._device = device
        self._encoder: Encoder | None = encoder  # None when this is closed: its memory may be shared with others
        self._writable = writable
        self._refreshes = False
        self._reranker: Reranker | None = None
        self._writer: IndexWriter | None = None
        self._view = CurrentView(directory, options, device)
        try:
            if writable:
                self._writer = self._opened_writer()
                self._follow()  # another writer may have committed before the lock was ours
        except BaseException:
            self.close()
            raise

    @classmethod
    @finishes_before_exit
    def open(  # noqa: PLR0913  # keywords, each with a default
        cls,
        path: str | os.PathLike[str],
        *,
        writable: bool = False,
        backend: str = "auto",
        encoder: str | os.PathLike[str] | Encoder | None = None,
        reranker: str | os.PathLike[str] | Reranker | None = None,
        threads: int | None = None,
        memory: str | int | None = None,
        device: str | None = None,
        device_bytes: int | None = None,
        refresh: bool = False,
    ) -> Engine:
        """Open an index. The encoder's model is loaded at the first text.

        Args:
            path: the folder of the index.
            writable: whether to add and delete; takes the write lock.
            backend: "auto", "exact" (numpy, slow, the reference), "scan" (SIMD over all centroids),
                "cpu_faiss" (IVF lists where the index has them), "hnsw" (graphs; see `optimize`) or "gpu" (all
                centroids, or where they do not fit its memory the lists, on a device).
            encoder: the one the index was built with: a bundle's folder, an `Encoder`, or None for the bundled
                default. An index of another encoder's vectors can be opened without it, searched with
                `search_vectors` and in lexical mode, and changed in all ways but `add`.
            reranker: for searches with `rerank`: the folder of a cross-encoder's bundle, or a `Reranker`.
            threads: for batches of queries and for encoding; None: one for each CPU this process may use.
            memory: the most main memory that may be held for searching, in bytes or as "500MB": copies that
                backends make, decoded postings, quantizers, a number for each document; not mapped files, the
                model, what a search needs while it lasts, or what `add` and `merge` do. "auto" takes what fits.
            device: where backend "gpu" runs: "cuda", "cuda:1", or "cpu" (slow: the same code, for tests); None:
                the first CUDA device.
            device_bytes: of the device's memory that may be used; None: nine tenths of what is free.
            refresh: whether each search begins with a `refresh`, so that it sees what was committed before it, by
                whichever process. Where nothing was, that takes a listing of the folder.

        Raises:
            IndexNotFound: there is no index.
            IndexLocked: `writable`, and there is another writer.
            EncoderMismatch: an encoder was given, and the vectors are another's.
            FormatError: a file of the index is damaged.
            InvalidSetting: a value is out of range, or the memory is too little for this index.
            BackendUnavailable: the backend asked for needs a library, or a device, that is not here.
        """
        options = OpenOptions(
            backend=backend,
            memory_bytes=memory_bytes(memory),
            threads=threads,
            device=device,
            device_bytes=device_bytes,
        )
        accelerator = Device(device, device_bytes)
        check_backend(backend, accelerator)
        is_writable, refreshes = checked_flag(writable, "writable"), checked_flag(refresh, "refresh")
        folder = Directory(checked_path(path, "path"))
        index = cls(folder, options, accelerator, open_encoder(encoder), is_writable)
        index._refreshes = refreshes
        try:
            if reranker is not None:
                index._reranker = open_reranker(reranker, options.n_threads)
            if encoder is not None:
                index._matching_encoder(index._view.get())
        except BaseException:
            index.close()
            raise
        return index

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self, queries: str, k: int = ..., **options: Unpack[SearchKeywords]
    ) -> Hits: ...

    @overload
    def search(self, queries: Sequence[str], k: int = ..., **options: Unpack[SearchKeywords]) -> list[Hits]: ...

    @finishes_before_exit
    def search(
        self, queries: str | Sequence[str], k: int = 10, **options: Unpack[SearchKeywords]
    ) -> Hits | list[Hits]:
        """Find the documents that answer a text, best first.

        Args:
            queries: one text, or several.
            k: how many hits; fewer come back only where fewer documents are in the index, or pass the filter, or
                in lexical mode have a term of the query.
            **options: the other fields of `quarry.engine.options.SearchOptions`: `mode`, `filter`, `candidates`,
                `nprobe`, `explain`, `fusion`, `dense_weight`, `rerank`.

        Returns:
            The hits of the text, or for several texts a list of hits for each. Each list says in `exactness`
            whether a better document may have been passed over.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidQuery: a query is no text; or by its meaning it has no token, or the encoder gives no usable
                vector for it. In lexical mode a query without terms finds nothing.
            InvalidFilter: the filter is malformed, or compares values with those of another type.
            InvalidSetting: an option is out of range, or there is none of that name.
            EncoderMismatch: the index holds vectors of another encoder (lexical mode works all the same).
        """
        chosen = SearchOptions.of(k, options)
        texts = query_texts(queries)
        if chosen.rerank:
            reranker, found = self._require_reranker(), self._found(texts, replace(chosen, k=chosen.rerank))
            found = [reranked(text, hits, reranker, k) for text, hits in zip(texts, found, strict=True)]
        else:
            found = self._found(texts, chosen)
        return found[0] if isinstance(queries, str) else found

    @finishes_before_exit
    def search_vectors(self, queries: npt.ArrayLike, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hits]:
        """Find documents for (n, dim) query vectors, converted to float32; see `search`. The mode is dense.

        Raises:
            InvalidQuery: no numbers, the wrong shape, or numbers that are not finite or above 1e18.
        """
        options.setdefault("mode", "dense")
        chosen = SearchOptions.of(k, options)
        if chosen.mode != "dense" or chosen.rerank:
            raise InvalidSetting("vectors have no words", expected="mode dense, no rerank", actual=chosen.mode)
        view = self._to_search()
        return view.search_dense(query_vectors(queries, view.snapshot.manifest.settings.dim), chosen)

    def add(self, docs: DocumentSource) -> int:
        """Collect documents for the next commit; one whose id exists replaces it. Returns how many.

        Raises:
            InvalidDocument: a document is not valid; those before it stay collected until `rollback`.
            InvalidSetting: `docs` is nothing that documents can be read from, as a table.
            CommitFailed: the system failed; those taken until then stay collected, and can be committed.
            EncoderMismatch: the vectors of the index are another encoder's.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        self._matching_encoder(self._view.get())
        with contextlib.closing(read_documents(docs)) as stream:
            return writer.add(stream)

    @finishes_before_exit
    def delete(self, ids: Iterable[str] | str) -> int:
        """Delete documents at the next commit. Returns how many of the ids there were.

        Args:
            ids: one id, or several; those that no document has are passed over.

        Raises:
            InvalidSetting: the ids are no str and no iterable of them; nothing was deleted.
            ReadOnlyIndex: the index was not opened writable.
        """
        return self._require_writer().delete(id_list(ids))

    @finishes_before_exit
    def commit(self) -> int:
        """Make all additions and deletions visible, durably, in one step. Returns the generation.

        After it segments are merged in the background if they have become many, or much in them is deleted: a
        generation of its own each time. Answers that are exact (see `Hits.exactness`) stay the same, to the last
        bit of each score, except for the order of documents with equal scores.

        Raises:
            CommitFailed: nothing was committed; what was collected stays so, and `commit` can be tried again.
            DurabilityUnknown: committed, but perhaps not for good; or the system has not said whether.
            MergeFailed: committed, but a merge in the background failed; it is tried again after later commits.
            FormatError: committed, but a merge in the background found a damaged file. Its segment is left as it
                is, and others are merged without it.
            InvalidSetting: committed, but the memory allowed is too little for the index now. A note says so.
        """
        writer = self._require_writer()
        generation, _ = writer.commit()
        try:
            self._follow()
            writer.raise_merge_failure()
        except Exception as error:
            error.add_note(f"Generation {generation} was committed all the same.")
            raise
        return generation

    @finishes_before_exit
    def merge(self, retrain: bool = False) -> int:
        """Merge all segments into as few as there can be, without what is deleted. Returns the generation.

        Commits do so by themselves where it pays. What is collected for the next commit stays collected.

        Args:
            retrain: also train a new quantizer on the stored centroids and code them anew: for an index whose
                documents are no longer like those it was trained on (see `stats`).

        Raises:
            FormatError: a file is damaged; the index stays as it was.
            InvalidSetting: `retrain` for an index that stores codes alone; nothing was done. What codes have lost
                cannot be trained on: with codes of codes it found fewer of the nearest than before, so build it
                anew.
            MergeFailed: the system failed; the last commit stands.
        """
        return self._require_writer().merge(checked_flag(retrain, "retrain"))

    @finishes_before_exit
    def rollback(self) -> None:
        """Forget additions and deletions since the last commit."""
        self._require_writer().rollback()

    @finishes_before_exit
    def optimize(self) -> int:
        """Write what makes searching faster and can be made again at any time. Returns how many files were new.

        These are the HNSW graphs of segments of 20,000 centroids or more that have none. It takes minutes for
        millions of centroids, and memory for their vectors; searches, here and in other processes, go on
        meanwhile. Commit first: a graph is of committed documents.

        Raises:
            MergeFailed: the system failed, as on a full disk; the index is whole, and nothing half is left.
            ReadOnlyIndex: the index was not opened writable.
        """
        self._require_writer()
        before = self._view.get().snapshot
        n_written = write_graphs(before, self._options.n_threads)
        drop_graphs(before, self._view.reopen())
        return n_written

    @finishes_before_exit
    def refresh(self) -> bool:
        """Answer from the newest generation from now on. Returns whether there was a newer one.

        An index that was copied or built anew in the place of this one counts as newer, whatever its generation.
        """
        return self._view.refresh()

    @finishes_before_exit
    def get(self, ids: Iterable[str] | str) -> list[Document]:
        """The documents of these ids, in their order; ids that are not there are passed over.

        Raises:
            InvalidSetting: the ids are no str and no iterable of them.
        """
        return self._view.get().documents(id_list(ids))

    def __contains__(self, doc_id: object) -> bool:
        return self._view.get().snapshot.find(checked_id(doc_id, "the id")) is not None

    def __len__(self) -> int:
        return len(self._view.get().snapshot)

    @finishes_before_exit
    def count(self, filter: Mapping[str, object]) -> int:  # noqa: A002  # as in search
        """Return how many documents pass a filter of metadata, id and title (see `quarry.engine.filtering`).

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidFilter: it is malformed, or compares values with those of another type.
        """
        return self._view.get().filter.count(parse_filter(filter))

    @finishes_before_exit
    def stats(self) -> dict[str, object]:
        """Numbers about the index, what searches it, and the memory that takes. See `statistics`."""
        view = self._view.get()
        return index_statistics(view.snapshot) | view.resources()

    @finishes_before_exit
    def verify(self) -> VerifyReport:
        """Read every byte of the generation that is open, or if its files are gone of the newest.

        Raises:
            FormatError: something is wrong; the message lists everything that is, `findings` holds the errors.
        """
        return verify_index(self._directory, self._view.get().snapshot.manifest)

    def close(self) -> None:
        """Close all files and release the lock; hits stay valid, and closing twice is harmless.

        What was added and deleted without a `commit` is forgotten. A merge in the background is waited for.

        Raises:
            FormatError: it found a damaged file; all is closed.
        """
        self._close(abandon=False)

    def __repr__(self) -> str:
        return f"Engine.open({str(self._directory.path)!r}, writable={self._writable})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(abandon=kind is not None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Engine cannot be pickled or copied; each process opens the index itself")

    def _close(self, *, abandon: bool) -> None:
        """See `close`; where a merge is abandoned, the index stays as it was before."""
        writer, self._writer = self._writer, None
        if self._view.is_forked:  # the writer and the device are the parent's
            self._view.close()
            return
        try:
            if writer:
                if writer.has_changes() and not abandon:
                    _log.warning("%s: closed without a commit; what was added and deleted is forgotten", self)
                writer.close(abandon=abandon)
        finally:
            self._view.close()
            self._device.trim()
            self._encoder = self._reranker = None

    def _opened_writer(self) -> IndexWriter:
        """A writer that does not keep this object alive: the lock of one that is dropped goes with it."""
        this = weakref.ref(self)

        def follow() -> None:
            index = this()
            if index is not None:
                index._follow()

        threads = self._options.n_threads
        encoder = self._open_encoder()
        return IndexWriter(self._directory, encoder, threads, policy=MergePolicy(), after_merge=follow)

    def _to_search(self) -> IndexView:
        if self._refreshes:
            self._view.refresh()
        return self._view.get()

    def _follow(self) -> None:
        """Answer from the generation that the writer made last."""
        self._view.follow(lambda: self._writer.snapshot() if self._writer else None)

    def _require_writer(self) -> IndexWriter:
        self._view.get()
        if self._writer is None:
            raise ReadOnlyIndex(
                "the index was opened for reading; open it with writable=True", path=self._directory.path
            )
        return self._writer

    def _open_encoder(self) -> Encoder:
        encoder = self._encoder
        if encoder is None:
            raise IndexClosed("the index is closed", path=self._directory.path)
        return encoder

    def _matching_encoder(self, view: IndexView) -> Encoder:
        """The encoder; vectors of another one are refused."""
        encoder = self._open_encoder()
        made: EncoderRecord = view.snapshot.manifest.encoder
        if made.identity != encoder.identity:
            raise EncoderMismatch(
                "the vectors of this index are another encoder's; open it with encoder=...",
                path=self._directory.path,
                expected=f"{made.name} ({made.identity})",
                actual=f"{encoder.name} ({encoder.identity})",
            )
        return encoder

    def _found(self, texts: list[str], options: SearchOptions) -> list[Hits]:
        """The hits for each text, before reranking."""
        view = self._to_search()
        if options.mode == "lexical":
            return view.search_lexical(texts, options)
        encoder = self._matching_encoder(view)
        vectors = encode_queries(encoder, texts, self._options.n_threads)
        if options.mode == "dense":
            return view.search_dense(vectors, options)
        return view.search_hybrid(vectors, texts, options)

    def _require_reranker(self) -> Reranker:
        self._view.get()
        reranker = self._reranker
        if reranker is None:
            raise InvalidSetting(
                "nothing to rerank with; open the index with reranker=...", path=self._directory.path
            )
        return reranker
