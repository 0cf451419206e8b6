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
from quarry.engine.index.verification import VerifyReport, verify_index
from quarry.engine.index.view import IndexView
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.merge_policy import MergePolicy
from quarry.engine.options import OpenOptions, SearchKeywords, SearchOptions
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.scoring.query_vectors import query_vectors
from quarry.engine.search.hits import Hits
from quarry.engine.search.queries import encode_queries, query_texts
from quarry.engine.search.reranker import Reranker, open_reranker, reranked
from quarry.engine.shards.current_shards import CurrentShards
from quarry.engine.shards.sharded_writer import ShardedWriter
from quarry.engine.shards.verification import verify_shards
from quarry.engine.shards.view import ShardedView
from quarry.formats.container.directory import Directory
from quarry.formats.errors import EncoderMismatch, IndexClosed, InvalidSetting, ReadOnlyIndex
from quarry.formats.manifest import EncoderRecord
from quarry.formats.shard_set import has_shard_set
from quarry.formats.snapshot import Snapshot
from quarry.formats.system_errors import checked_path

__all__ = ["Engine"]

_log = logging.getLogger(__name__)


class Engine:
    """An open index, returned by `Engine.open`; a context manager.

    It answers from the generation that was current when it was opened, until `refresh` or its own `commit`. Any
    number of threads may search at once, and several may write: a commit includes what all of them have added so
    far. After `close`, and in a forked child, every method except `close` raises `IndexClosed`; a forked child
    must open the index itself.
    """

    def __init__(
        self, directory: Directory, options: OpenOptions, device: Device, encoder: Encoder, writable: bool
    ) -> None:
        self._directory = directory
        self._options = options
        self._device = device
        self._encoder: Encoder | None = encoder  # None after close, so that a shared encoder can be freed
        self._writable = writable
        self._refreshes = False
        self._reranker: Reranker | None = None
        self._writer: IndexWriter | ShardedWriter | None = None
        self._view: CurrentView | CurrentShards = (
            CurrentShards(directory, options, device)
            if has_shard_set(directory)
            else CurrentView(directory, options, device)
        )
        try:
            if writable:
                self._writer = self._opened_writer()
                self._follow()  # another writer may have committed before this one held the lock
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
        """Open an index. The model of the encoder is loaded when the first text is encoded.

        Args:
            path: folder of the index.
            writable: whether to allow changes; takes the write lock.
            backend: "auto", "exact" (numpy, slow, the reference), "scan" (SIMD over all centroids), "cpu_faiss"
                (inverted lists, if the index has them), "hnsw" (graphs; see `optimize`) or "gpu" (all centroids
                on a device, or inverted lists if the centroids do not fit into its memory).
            encoder: the encoder that the index was built with: the folder of a bundle, an `Encoder`, or None for
                the bundled default. Without the right encoder an index can still be opened, searched with
                `search_vectors` and in lexical mode, and changed except by `add`.
            reranker: the folder of a cross-encoder's bundle, or a `Reranker`, for searches with `rerank`.
            threads: threads for batches of queries and for encoding; None: one for each available CPU.
            memory: maximum main memory held for searching, in bytes or as "500MB". It covers copies made by
                backends, decoded postings, quantizers and per-document data; it does not cover mapped files, the
                model, temporary memory of a search, `add` and `merge`. Backend "auto" chooses what fits.
            device: device of backend "gpu": "cuda", "cuda:1", or "cpu" (slow, for tests); None: the first CUDA
                device.
            device_bytes: maximum device memory to use; None: 90 % of the free memory.
            refresh: whether each search begins with `refresh`, so that it sees every earlier commit of any
                process. If there is none, this costs a listing of the folder.

        Raises:
            IndexNotFound: there is no index.
            IndexLocked: `writable`, and another writer holds the lock.
            EncoderMismatch: `encoder` is not the encoder of the index.
            FormatError: a file of the index is damaged.
            InvalidSetting: a value is out of range, or the memory limit is too low for this index.
            BackendUnavailable: the requested backend needs a library or a device that is missing.
            AccessFailed: the operating system refuses access to a file.
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
        """Search with one or several texts; hits are sorted best first.

        Args:
            queries: one text, or several.
            k: number of hits; fewer are returned only if the index has fewer documents, fewer pass the filter, or
                in lexical mode fewer contain a term of the query.
            **options: the other fields of `quarry.engine.options.SearchOptions`: `mode`, `filter`, `candidates`,
                `nprobe`, `explain`, `fusion`, `dense_weight`, `rerank`, `partial`, `timeout`.

        Returns:
            The hits of the text, or a list with the hits of each text. `Hits.exactness` states whether a better
            document may have been missed.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidQuery: a query is not a text, has no token (except in lexical mode, where it finds nothing), or
                the encoder returns no usable vector for it.
            InvalidFilter: the filter is malformed, or compares values of different types.
            InvalidSetting: an option is out of range or unknown.
            EncoderMismatch: the vectors of the index are of another encoder (lexical mode works).
            ShardTimeout: a shard of the index did not answer within `timeout`, and not `partial`.
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
        """Search with (n, dim) query vectors, converted to float32, in dense mode; see `search`.

        Raises:
            InvalidQuery: not numeric, the wrong shape, or values that are not finite or above 1e18.
        """
        options.setdefault("mode", "dense")
        chosen = SearchOptions.of(k, options)
        if chosen.mode != "dense" or chosen.rerank:
            raise InvalidSetting(
                "vectors are searched in dense mode without reranking",
                expected="mode dense, no rerank",
                actual=chosen.mode,
            )
        view = self._to_search()
        return view.search_dense(query_vectors(queries, view.dim), chosen)

    def add(self, docs: DocumentSource) -> int:
        """Add documents to the next commit and return their number; a document replaces one with the same id.

        Raises:
            InvalidDocument: a document is not valid; those before it are kept for the next commit, or `rollback`.
            InvalidSetting: documents cannot be read from `docs`, for example from a table.
            CommitFailed: an I/O error occurred; the documents added before it are kept and can be committed.
            EncoderMismatch: the vectors of the index are of another encoder.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        self._matching_encoder(self._view.get())
        with contextlib.closing(read_documents(docs)) as stream:
            return writer.add(stream)

    @finishes_before_exit
    def delete(self, ids: Iterable[str] | str) -> int:
        """Delete documents in the next commit and return how many of the ids existed.

        Args:
            ids: one id, or several; ids that no document has are ignored.

        Raises:
            InvalidSetting: not a str or an iterable of str; nothing was deleted.
            ReadOnlyIndex: the index was not opened writable.
        """
        return self._require_writer().delete(id_list(ids))

    @finishes_before_exit
    def commit(self) -> int:
        """Make all additions and deletions visible and durable in one step; return the generation.

        Afterwards segments are merged in the background, if there are many or much in them is deleted; each merge
        makes a generation of its own. Exact answers (see `Hits.exactness`) do not change by a merge, to the last
        bit of each score, except for the order of documents with equal scores.

        Raises:
            CommitFailed: nothing was committed; additions and deletions are kept, and `commit` can be tried again.
            DurabilityUnknown: committed, but it may not survive a power loss; or the outcome is unknown.
            MergeFailed: committed, but a background merge failed; it is tried again after later commits.
            FormatError: committed, but a background merge found a damaged file. Its segment is left unchanged, and
                others are merged without it.
            InvalidSetting: committed, but the memory limit is now too low for the index. A note says so.
        """
        writer = self._require_writer()
        generation, _ = writer.commit()
        try:
            self._follow()
            writer.raise_merge_failure()
        except Exception as error:
            error.add_note(f"Generation {generation} was committed.")
            raise
        return generation

    @finishes_before_exit
    def merge(self, retrain: bool = False) -> int:
        """Merge all segments into as few as possible, without deleted documents; return the generation.

        Commits merge in the background anyway when it pays. Uncommitted additions and deletions are kept.

        Args:
            retrain: whether to train a new quantizer on the stored centroids and encode them again, for an index
                whose documents have drifted from those it was trained on (see `stats`).

        Raises:
            FormatError: a file is damaged; the index is unchanged.
            InvalidSetting: `retrain` on an index of codes alone; nothing was done. A quantizer trained on decoded
                codes finds fewer neighbors than the old one, so such an index has to be built again.
            MergeFailed: an I/O error occurred; the last commit is still current.
        """
        return self._require_writer().merge(checked_flag(retrain, "retrain"))

    @finishes_before_exit
    def rollback(self) -> None:
        """Discard additions and deletions since the last commit."""
        self._require_writer().rollback()

    @finishes_before_exit
    def optimize(self) -> int:
        """Write HNSW graphs for segments of 20,000 centroids or more that have none; return how many were written.

        This takes minutes for millions of centroids, and memory for their vectors; searches in this and other
        processes continue meanwhile. Graphs cover committed documents only, so commit first. A graph is optional
        data: it can be deleted and written again at any time.

        Raises:
            MergeFailed: an I/O error occurred, for example on a full disk; no incomplete file is left.
            ReadOnlyIndex: the index was not opened writable.
        """
        self._require_writer()
        return self._view.optimize(self._options.n_threads)

    @finishes_before_exit
    def refresh(self) -> bool:
        """Answer from the newest generation from now on; return whether there was a newer one.

        An index that replaced this one, by copying or building, counts as newer, whatever its generation.
        """
        return self._view.refresh()

    @finishes_before_exit
    def get(self, ids: Iterable[str] | str) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored.

        Raises:
            InvalidSetting: not a str or an iterable of str.
        """
        return self._view.get().documents(id_list(ids))

    def __contains__(self, doc_id: object) -> bool:
        return self._view.get().has(checked_id(doc_id, "the id"))

    def __len__(self) -> int:
        return self._view.get().n_documents

    @finishes_before_exit
    def count(self, filter: Mapping[str, object]) -> int:  # noqa: A002  # as in search
        """Return how many documents pass a filter of metadata, id and title (see `quarry.engine.filtering`).

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidFilter: it is malformed, or compares values with those of another type.
        """
        return self._view.get().count(parse_filter(filter))

    @finishes_before_exit
    def stats(self) -> dict[str, object]:
        """Numbers about the index, what searches it, and the memory that takes. See `statistics`."""
        return self._view.get().statistics()

    @finishes_before_exit
    def verify(self) -> VerifyReport:
        """Read every byte of the generation that is open, or if its files are gone of the newest.

        Raises:
            FormatError: something is wrong; the message lists everything that is, `findings` holds the errors.
        """
        view = self._view.get()
        if isinstance(view, ShardedView):
            return verify_shards(self._directory)
        return verify_index(self._directory, view.snapshot.manifest)

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

    def _opened_writer(self) -> IndexWriter | ShardedWriter:
        """A writer that does not keep this object alive: the lock of one that is dropped goes with it."""
        this = weakref.ref(self)

        def follow() -> None:
            index = this()
            if index is not None:
                index._follow()

        threads = self._options.n_threads
        encoder = self._open_encoder()
        if isinstance(self._view, CurrentShards):
            return ShardedWriter(self._directory, encoder, threads, after_merge=follow)
        return IndexWriter(self._directory, encoder, threads, policy=MergePolicy(), after_merge=follow)

    def _to_search(self) -> IndexView | ShardedView:
        if self._refreshes:
            self._view.refresh()
        return self._view.get()

    def _follow(self) -> None:
        """Answer from the generation that the writer made last."""
        if isinstance(self._view, CurrentShards):
            self._view.follow()
        else:
            self._view.follow(self._written)

    def _written(self) -> Snapshot | None:
        writer = self._writer
        return writer.snapshot() if isinstance(writer, IndexWriter) else None

    def _require_writer(self) -> IndexWriter | ShardedWriter:
        self._view.get()
        writer = self._writer
        if writer is None and self._writable:  # another thread is closing it
            raise IndexClosed("the index is closed", path=self._directory.path)
        if writer is None:
            raise ReadOnlyIndex(
                "the index was opened for reading; open it with writable=True", path=self._directory.path
            )
        return writer

    def _open_encoder(self) -> Encoder:
        encoder = self._encoder
        if encoder is None:
            raise IndexClosed("the index is closed", path=self._directory.path)
        return encoder

    def _matching_encoder(self, view: IndexView | ShardedView) -> Encoder:
        """The encoder; vectors of another one are refused."""
        encoder = self._open_encoder()
        made: EncoderRecord = view.encoder
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
