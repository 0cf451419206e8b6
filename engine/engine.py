"""An open index: the public methods, which a view answers and a writer carries out."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack, overload

import numpy.typing as npt

from quarry.engine.arguments import checked_flag, checked_seconds
from quarry.engine.attempts.staging import collect_staging
from quarry.engine.backends.registry import check_backend
from quarry.engine.creation import NewIndex
from quarry.engine.documents.document import Document
from quarry.engine.documents.id_list import checked_id, id_list
from quarry.engine.documents.reader import DocumentSource, read_documents
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.encoding.encoder import Encoder, open_encoder
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.gpu.device import Device
from quarry.engine.index.current_view import CurrentView
from quarry.engine.index.memory import memory_bytes
from quarry.engine.index.verification import VerifyReport, verify_index
from quarry.engine.index.view import IndexView, ViewResources
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.options import BuildKeywords, OpenOptions, SearchKeywords, SearchOptions
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.representation.base import Representation
from quarry.engine.reuse.snapshot import SnapshotReport, write_snapshot
from quarry.engine.search.hits import Hits
from quarry.engine.search.queries import query_texts
from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.engine.shards.current_shards import CurrentShards
from quarry.engine.shards.sharded_writer import ShardedWriter
from quarry.engine.shards.verification import verify_shards
from quarry.engine.shards.view import ShardedView
from quarry.engine.sync.folder_sync import FolderSync, SyncReport
from quarry.engine.thresholds import Thresholds, checked_thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexClosed, InvalidSetting, ReadOnlyIndex
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
        self,
        directory: Directory,
        resources: ViewResources,
        *,
        is_writable: bool,
        is_refreshing: bool,
        wait_s: float = 0,
    ) -> None:
        self._directory = directory
        self._device = resources.device
        self._n_threads = resources.options.n_threads
        self._thresholds = resources.options.thresholds
        self._is_writable = is_writable
        self._is_refreshing = is_refreshing
        self._writer: IndexWriter | ShardedWriter | None = None
        self._view: CurrentView | CurrentShards = (
            CurrentShards(directory, resources) if has_shard_set(directory) else CurrentView(directory, resources)
        )
        try:
            if is_writable:
                self._writer = self._open_writer(resources.encoder, wait_s)
                collect_staging(directory.path, self._writer.lock)
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
        wait: float | None = None,
        create: bool = False,
        backend: str = "auto",
        encoder: str | os.PathLike[str] | Encoder | None = None,
        representation: str | Representation | None = None,
        shards: int | None = None,
        reranker: str | os.PathLike[str] | Reranker | None = None,
        threads: int | None = None,
        memory: str | int | None = None,
        device: str | None = None,
        device_bytes: int | None = None,
        refresh: bool = False,
        thresholds: Thresholds | None = None,
        **settings: Unpack[BuildKeywords],
    ) -> Engine:
        """Open an index. The model of the encoder is loaded when the first text is encoded.

        Args:
            path: folder of the index.
            writable: whether to allow changes; takes the write lock.
            wait: with `writable`, seconds to wait for another writer to close the index, so that several processes
                take turns; they get it in no particular order. The index is then at the newest generation. None:
                do not wait.
            create: whether to create an empty index, as `build` would, if there is none. Several processes may do
                so at once: one creates it, the others open it.
            backend: "auto", "exact" (numpy, slow, the reference), "scan" (SIMD over all centroids), "cpu_faiss"
                (inverted lists, if the index has them), "hnsw" (graphs; see `optimize`) or "gpu" (all centroids
                on a device, or inverted lists if the centroids do not fit into its memory).
            encoder: the encoder that the index was built with: the folder of a bundle, an `Encoder`, or None for
                the bundled default. Without the right encoder an index can still be opened, searched with
                `search_vectors` and in lexical mode, and changed except by `add`.
            representation: with `create`, as in `build`. An index that exists must have the same.
            shards: with `create`, as in `build`. An index that exists must have as many.
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
            thresholds: advanced settings, such as when segments are merged; see `quarry.engine.thresholds`. None:
                the defaults.
            **settings: with `create`, as in `build`: fields of `quarry.engine.options.BuildOptions`. An index that
                exists must have those that are given.

        Raises:
            IndexNotFound: there is no index, and `create` is false.
            IndexLocked: `writable`, and another writer holds the lock, also after `wait`; or `create`, and another
                process is building the first index there, and was not done after 10 seconds and `wait`.
            EncoderMismatch: `encoder` is not the encoder of the index.
            FormatError: a file of the index is damaged.
            InvalidSetting: a value is out of range, the memory limit is too low for this index, or the index has
                other settings than those given with `create`.
            BackendUnavailable: the requested backend needs a library or a device that is missing.
            AccessFailed: the operating system refuses access to a file.
        """
        options = OpenOptions(
            backend=backend,
            memory_bytes=memory_bytes(memory),
            threads=threads,
            device=device,
            device_bytes=device_bytes,
            thresholds=checked_thresholds(thresholds),
        )
        accelerator = Device(device, device_bytes)
        check_backend(backend, accelerator)
        is_writable, is_refreshing = checked_flag(writable, "writable"), checked_flag(refresh, "refresh")
        wait_s = checked_seconds(wait, "wait")
        folder = checked_path(path, "path")
        resources = ViewResources(
            options,
            accelerator,
            open_encoder(encoder),
            None if reranker is None else open_reranker(reranker, options.n_threads),
        )
        new = None
        if checked_flag(create, "create"):
            new = NewIndex(
                encoder=resources.encoder,
                representation=representation,
                shards=shards,
                resources=options,
                settings=settings,
                wait_s=wait_s,
            )
        elif settings or representation is not None or shards is not None:
            raise InvalidSetting("settings of an index are given without create=True", path=folder)

        def opened() -> Engine:
            directory = Directory(folder, limits=options.thresholds.writing)
            return cls(directory, resources, is_writable=is_writable, is_refreshing=is_refreshing, wait_s=wait_s)

        index = opened() if new is None else new.open(folder, opened)
        try:
            view = index._view.get()
            if encoder is not None:
                view.check_encoder()
            if new is not None:
                new.check(view.settings, len(view.shards) if isinstance(view, ShardedView) else None, folder)
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
        found = self._view_to_search().search(query_texts(queries), chosen)
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
        return self._view_to_search().search_vectors(queries, chosen)

    def add(
        self,
        docs: DocumentSource,
        *,
        id: str | None = None,  # noqa: A002  # the field
        text: str | Sequence[str] | None = None,
        title: str | None = None,
    ) -> int:
        """Add documents to the next commit and return their number; a document replaces one with the same id.

        Args:
            docs: documents, or where they are read; see `build`.
            id: column of a table that has the ids; see `build`.
            text: column of the texts, or several.
            title: column of the titles.

        Raises:
            InvalidDocument: a document is not valid; those before it are kept for the next commit, or `rollback`.
            InvalidSetting: documents cannot be read from `docs`, or a column is missing; the message says what
            helps.
            CommitFailed: an I/O error occurred; the documents added before it are kept and can be committed.
            EncoderMismatch: the vectors of the index are of another encoder.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        self._view.get().check_encoder()
        with contextlib.closing(read_documents(docs, columns=Columns.of(id, text, title))) as stream:
            return writer.add(stream)

    @finishes_before_exit
    def sync(
        self, folder: str | os.PathLike[str], *, dry_run: bool = False, remove_all: bool = False
    ) -> SyncReport:
        """Make the documents of the index those of a folder's files, in one commit; see `quarry.engine.sync`.

        The shards of an index are committed one after another; if that fails, the next call does the rest.

        Files that are new or changed are added, documents whose files are gone are deleted. A file that cannot be
        read keeps its document. Documents that were not read from files stay: a file that would replace one, as
        its path is the same as the id, is reported in `SyncReport.failed`. A folder of the index inside `folder`
        is left out.

        Args:
            folder: of the files.
            dry_run: whether to change nothing and only report; works on an index opened for reading.
            remove_all: whether to go on if none of the files that the index has is in the folder any more.

        Raises:
            InvalidSetting: there is no such folder, it is the folder of the index, additions or deletions are not
                committed yet, or none of the files of the index is in the folder.
            CommitFailed: an I/O error occurred; the index is unchanged, or of its shards those that a note names.
            EncoderMismatch: the vectors of the index are of another encoder.
            ReadOnlyIndex: the index was not opened writable, and `dry_run` is false.
        """
        writer = None if checked_flag(dry_run, "dry_run") else self._require_writer()
        view = self._view.get()
        if writer is not None:
            view.check_encoder()
        plan = FolderSync(
            checked_path(folder, "folder"),
            self._directory.path,
            [shard.snapshot for shard in view.shards] if isinstance(view, ShardedView) else [view.snapshot],
            checked_flag(remove_all, "remove_all"),
        )
        report = plan.report() if writer is None else plan.carry_out(writer)
        self._follow()
        return report

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
        return self._view.optimize()

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
        """Return the number of documents that pass a filter, see `quarry.engine.filtering`.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidFilter: the filter is malformed, or compares values of different types.
        """
        return self._view.get().count(parse_filter(filter))

    @finishes_before_exit
    def stats(self) -> dict[str, object]:
        """Return statistics of the index, its backends and its memory, see `quarry.engine.index.statistics`.

        Those of a sharded index are described in `quarry.engine.shards.statistics`.
        """
        return self._view.get().statistics()

    @finishes_before_exit
    def verify(self) -> VerifyReport:
        """Read every byte of the current generation, or of the newest if its files were deleted.

        Raises:
            FormatError: files are damaged; the message lists all errors, and `findings` holds them.
        """
        view = self._view.get()
        if isinstance(view, ShardedView):
            return verify_shards(self._directory)
        return verify_index(self._directory, view.snapshot.manifest)

    @finishes_before_exit
    def snapshot(self, path: str | os.PathLike[str]) -> SnapshotReport:
        """Copy the newest generation of the index to another folder, which becomes an index in one step.

        On the same file system the copy consists of hard links, if these are supported: that takes milliseconds
        and no space, and either of the two can be changed or deleted without the other. Otherwise files are
        copied. Other processes may search and commit meanwhile. Changes that are not committed are left out. What
        a killed call leaves is not an index, and the next call with the same path deletes it. The shards of a
        sharded index are copied as a reader that opens them at that moment sees them.

        Args:
            path: folder of the copy; created if it is missing.

        Raises:
            IndexExists: there is an index at `path`.
            IndexLocked: another process is writing to `path`.
            FormatError: a file of the index is damaged or missing.
            AccessFailed: a file cannot be read or written, for example on a full disk; there is no new index.
        """
        self._view.get()
        return write_snapshot(self._directory, checked_path(path, "path"))

    def close(self) -> None:
        """Close all files and release the lock; hits stay valid, and closing twice is harmless.

        Additions and deletions that were not committed are discarded. A background merge is finished first.

        Raises:
            FormatError: the merge found a damaged file; the index is closed nevertheless.
        """
        self._close(abandon=False)

    def __repr__(self) -> str:
        return f"Engine.open({str(self._directory.path)!r}, writable={self._is_writable})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(abandon=kind is not None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Engine cannot be pickled or copied; each process opens the index itself")

    def _close(self, *, abandon: bool) -> None:
        """Close, see `close`; an abandoned merge leaves the index unchanged."""
        writer, self._writer = self._writer, None
        if self._view.is_forked:  # writer and device belong to the parent
            self._view.close()
            return
        try:
            if writer:
                if writer.has_changes() and not abandon:
                    _log.warning("%s: closed without a commit; additions and deletions are discarded", self)
                writer.close(abandon=abandon)
        finally:
            self._view.close()
            self._device.trim()

    def _open_writer(self, encoder: Encoder, wait_s: float) -> IndexWriter | ShardedWriter:
        """Open a writer that does not keep this object alive: if it is dropped, the lock is released with it."""
        this = weakref.ref(self)

        def follow() -> None:
            index = this()
            if index is not None:
                index._follow()

        if isinstance(self._view, CurrentShards):
            return ShardedWriter(
                self._directory, encoder, self._n_threads, self._thresholds, after_merge=follow, wait_s=wait_s
            )
        return IndexWriter(
            self._directory,
            encoder,
            self._n_threads,
            thresholds=self._thresholds,
            merges=True,
            after_merge=follow,
            wait_s=wait_s,
        )

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
        if writer is None and self._is_writable:  # another thread is closing it
            raise IndexClosed("the index is closed", path=self._directory.path)
        if writer is None:
            raise ReadOnlyIndex(
                "the index was opened for reading; open it with writable=True", path=self._directory.path
            )
        return writer

    def _view_to_search(self) -> IndexView | ShardedView:
        if self._is_refreshing:
            self._view.refresh()
        return self._view.get()
