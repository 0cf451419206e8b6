"""An open index: the public methods, which a view answers and a writer carries out."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack

import numpy as np

from quarry.engine.analysis.synonyms import checked_synonyms
from quarry.engine.arguments import checked_flag, checked_seconds
from quarry.engine.backends.protocol import BackendType
from quarry.engine.backends.registry import check_backend
from quarry.engine.building.creation import NewIndex
from quarry.engine.building.reencoding import Reencoding
from quarry.engine.building.workers.attempt import collect_staging
from quarry.engine.documents.document import FILE_FIELDS, Document
from quarry.engine.documents.given import id_list
from quarry.engine.documents.reader import DocumentSource, Readers, read_documents
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.documents.tables.document_columns import DocumentColumns, table_columns
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import EncoderSource, open_encoder
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.gpu.device import Device
from quarry.engine.index.current import Current
from quarry.engine.index.memory import memory_bytes
from quarry.engine.index.partition import OpenPartition
from quarry.engine.index.resources import ViewResources
from quarry.engine.index.verification import VerifyReport, verify_index
from quarry.engine.index.view import View
from quarry.engine.index_reader import IndexReader
from quarry.engine.indexer.commits.generation import CommittedGeneration
from quarry.engine.indexer.commits.metadata_updates import checked_changes
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.segments.graphs import drop_graphs, write_graphs
from quarry.engine.listing.documents import StoredDocuments, checked_range
from quarry.engine.options import BuildKeywords, OpenOptions, SearchOptions
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.progress import Progress, ProgressParts, ProgressSetting, count_items
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import representation_from
from quarry.engine.reuse.added_indexes import AddIndexesReport, add_indexes
from quarry.engine.reuse.snapshot import SnapshotReport, write_snapshot
from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.engine.sync import SyncReport, folder_sync
from quarry.engine.thresholds import Thresholds, checked_thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import (
    EncoderMismatch,
    IndexClosed,
    InvalidDocument,
    InvalidFilter,
    InvalidSetting,
    ReadOnlyIndex,
)
from quarry.formats.snapshot import Snapshot
from quarry.formats.system_errors import checked_path

__all__ = ["Engine"]


_log = logging.getLogger(__name__)


class Engine(IndexReader):
    """An open index, returned by `Engine.open`; a context manager.

    Its methods, by purpose:

    * searching: `search`, `search_vectors`;
    * reading: `get`, `documents`, `ids`, `count`, `facets`, ``len(index)``, ``id in index``;
    * changing, until `commit` or `rollback`: `add`, `add_columns`, `delete`, `update_metadata`;
    * changing with commits of their own: `sync`, `add_indexes`, `merge`, `reencode`, `upgrade`,
      `set_dense_weight`, `set_synonyms`;
    * maintaining: `optimize`, `verify`, `snapshot`, `stats`, `refresh`, `close`.

    It reads the generation that was current when it was opened, until `refresh` or its own `commit`. Any number of
    threads may search at once, and several may write: a commit includes what all of them have added so far. After
    `close`, and in a forked child, every method except `close` raises `IndexClosed`; a forked child must open the
    index itself.
    """

    def __init__(
        self,
        directory: Directory,
        resources: ViewResources,
        *,
        is_writable: bool,
        is_refreshing: bool,
        wait_s: float = 0,
        representation: Representation | None = None,
    ) -> None:
        self._directory = directory
        self._device = resources.device
        self._n_threads = resources.options.n_threads
        self._thresholds = resources.options.thresholds
        self._is_writable = is_writable
        self._representation = representation
        self._has_given_fields = False  # whether the caller said what is searchable
        self._writer: IndexWriter | None = None
        self._view: Current = Current(directory, resources, is_refreshing=is_refreshing)
        try:
            if is_writable:
                self._writer = self._open_writer(self._view.get().writing_encoder, wait_s)
                self._view.is_locked = True
                collect_staging(directory.path, self._writer.lock)
                self._view.refresh()  # another writer may have committed before
                self._follow()
        except BaseException:
            self.close()
            raise
        mode = "writing" if is_writable else "reading"
        _log.info("%s: opened for %s, %d documents", directory.path, mode, self._view.get().n_documents)

    @classmethod
    @finishes_before_exit
    def open(  # noqa: PLR0913  # keywords, each with a default
        cls,
        path: str | os.PathLike[str],
        *,
        writable: bool = False,
        wait: float | None = None,
        create: bool = False,
        backend: str | BackendType = "auto",
        encoder: EncoderSource = None,
        dim: int | None = None,
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
                on a device, or inverted lists if the centroids do not fit into its memory); the name of one that
                an installed package has registered, or its class.
            encoder: the encoder that the index was built with: the folder of a bundle, the name of a bundled
                encoder, an `Encoder`, a model of another library that `FunctionEncoder` recognizes, or None for
                the bundled encoder that the index has, whether or not it is the default today. Without the right
                encoder an index can still be opened, searched with vectors and in lexical mode, and changed,
                except by adding documents without vectors.
            dim: with `create`, as in `build`: the length of the vectors of an index without an encoder. An index
                that exists must have the same.
            representation: with `create`, as in `build`. An index that exists must have the same. To be changed,
                one that was built with an object of a class that is not Quarry's needs such an object again,
                except if a package has registered it and it has the default settings.
            shards: with `create`, as in `build`. An index that exists must have as many.
            reranker: the folder of a cross-encoder's bundle, the name of a reranker that an installed package has
                registered, or a `Reranker`, for searches with `rerank`.
            threads: threads for batches of queries and for encoding; None: one for each available CPU.
            memory: maximum main memory held for searching, in bytes or as "500MB". It covers copies made by
                backends, decoded postings, quantizers and per-document data; it does not cover mapped files, the
                model, temporary memory of a search, `add` and `merge`. Backend "auto" chooses what fits.
            device: device of backend "gpu": "cuda", "cuda:1", or "cpu" (slow, for tests); None: the first CUDA
                device.
            device_bytes: maximum device memory to use; None: 90 % of the free memory.
            refresh: whether each request (`search`, `get`, `count`, `facets`, `documents` and the like) begins
                with `refresh`, so that it sees every earlier commit of any process. If there is none, this costs a
                listing of the folder.
            thresholds: advanced settings, such as when segments are merged. None: the defaults.
            **settings: with `create`, as in `build`: fields of `quarry.engine.options.BuildOptions`. An index that
                exists must have those that are given.

        Raises:
            IndexNotFound: there is no index, and `create` is false.
            IndexLocked: `writable`, and another writer holds the lock, also after `wait`; or `create`, and another
                process is building the first index there, and was not done after 10 seconds and `wait`.
            EncoderMismatch: `encoder` is not the encoder of the index.
            FormatError: a file of the index is damaged.
            ExtensionFailed: a part of another package cannot be used.
            InvalidSetting: a value is out of range, the memory limit is too low for this index, or the index has
                other settings than those given.
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
            None if encoder is None else open_encoder(encoder),
            None if reranker is None else open_reranker(reranker, options.n_threads),
        )
        given = None if representation is None else representation_from(representation)
        new = None
        if checked_flag(create, "create"):
            new = NewIndex(
                encoder=resources.chosen_encoder,
                representation=given,
                shards=shards,
                dim=dim,
                resources=options,
                settings=settings,
                wait_s=wait_s,
            )
        elif settings or any(each is not None for each in (dim, shards)):
            raise InvalidSetting("settings of an index are given without create=True", path=folder)

        def opened() -> Engine:
            directory = Directory(folder, limits=options.thresholds.writing)
            return cls(
                directory,
                resources,
                is_writable=is_writable,
                is_refreshing=is_refreshing,
                wait_s=wait_s,
                representation=given,
            )

        index = opened() if new is None else new.open(folder, opened)
        try:
            index._check_opened(new, requires_encoder=encoder is not None)
            index._has_given_fields = "searchable" in settings
        except BaseException:
            index.close()
            raise
        return index

    def add(
        self,
        docs: DocumentSource,
        *,
        id: str | None = None,  # noqa: A002  # the field
        text: str | Sequence[str] | None = None,
        title: str | None = None,
        vectors: str | None = None,
        readers: Readers = None,
        progress: ProgressSetting = False,
    ) -> int:
        """Add documents to the next commit and return their number; a document replaces one with the same id.

        The number is that of all documents that were read, also of those that a later one with the same id
        replaces. Documents with vectors are stored with these, all others are encoded.

        Args:
            docs: documents, or where they are read; see `build`.
            id: column of a table that has the ids; see `build`.
            text: column of the texts, or several.
            title: column of the titles.
            vectors: column of the vectors.
            readers: functions that read files of other kinds; see `build`.
            progress: False, True (a bar), None (a bar on a terminal), or a function of (documents done, total or
                None).

        Raises:
            InvalidDocument: a document is not valid; those before it are kept for the next commit, or `rollback`.
            InvalidSetting: documents cannot be read from `docs`, or a column is missing; the message says what
            helps.
            EncodingFailed: an embedding function failed; the documents added before it are kept, and the error has
                those that were read and not added.
            CommitFailed: an I/O error occurred; the documents added before it are kept and can be committed.
            EncoderMismatch: a document has no vectors, and those of the index are of another encoder; documents
                before it are kept.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        stream = read_documents(docs, columns=Columns.of(id, text, title, vectors), readers=readers)
        with Progress(progress, "adding") as bar, contextlib.closing(stream):
            documents = count_items(stream, bar, stream.n_expected)
            return writer.add(_with_encoder(documents, self._view.get()))

    def add_columns(
        self,
        table: object = None,
        *,
        ids: object = None,
        vectors: object = None,
        texts: object = None,
        titles: object = None,
        metadata: object = None,
    ) -> int:
        """Add documents that are given as columns to the next commit, and return their number; see `add`.

        This is faster than `add` for documents with vectors, most of all without texts. Columns are NumPy arrays,
        lists, Series of pandas or polars, or Arrow data (any object with the Arrow PyCapsule interface; those of
        other libraries than these need pyarrow). All of them are checked first: after an error nothing is added.

        Args:
            table: a DataFrame, a mapping of names to columns, or a table, batch or stream of Arrow data; the other
                arguments are then names of its columns ("id" or "_id", "vectors", "text" and "title", if they are
                None and there are such columns), and all others are metadata. None: the arguments are columns.
            ids: texts or integers; None: random ids. Documents replace those with the same ids.
            vectors: (n, dim) numbers, or (n, m, dim) for m vectors of each document; None: texts are encoded.
            texts: texts, None for an empty one; numbers become their digits.
            titles: the same.
            metadata: mapping of names to columns, a table, or a column of mappings; with `table` names of columns.
                Missing values are left out; values are converted by the rules of `add`. Mappings in a column with
                the name "metadata" are added to the other columns.

        Raises:
            InvalidSetting: an argument is not a column, a column is missing, columns have different lengths, or
                vectors have another shape.
            InvalidDocument: a value is not valid; the message names the column and the row, counted from 0.
            CommitFailed: an I/O error occurred; the documents added before it are kept and can be committed.
            EncoderMismatch: there are no vectors, and those of the index are of another encoder.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        view = self._view.get()
        dim, is_cosine = view.metric.dim, view.metric.name == "cosine"
        given = {"ids": ids, "vectors": vectors, "texts": texts, "titles": titles, "metadata": metadata}
        if table is not None:
            given = table_columns(table, given)
        columns = DocumentColumns.of(dim, **given, is_cosine=is_cosine)
        if columns.vectors is None:
            return writer.add(_with_encoder(columns.documents(), view))
        return writer.add_columns(columns)

    @finishes_before_exit
    def sync(  # noqa: PLR0913  # keywords, each with a default
        self,
        folder: str | os.PathLike[str],
        *,
        id: str | None = None,  # noqa: A002  # the field
        text: str | Sequence[str] | None = None,
        title: str | None = None,
        readers: Readers = None,
        dry_run: bool = False,
        remove_all: bool = False,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        vectors_up_to: str | int | None = None,
        progress: ProgressSetting = False,
    ) -> SyncReport:
        """Make the documents of a folder in the index those of its files.

        All changes are one commit, unless they take longer than `Thresholds.sync_s`, 5 minutes: then what was done
        is committed, and the rest follows, so that a process that is killed does not begin again. The shards of an
        index are committed one after another; if that fails, the next call does the rest.

        Files that are new or changed are added, documents whose files are gone are deleted. A file that cannot be
        read or encoded, all of it, keeps the documents that it had. Documents that were read from other folders,
        or not from files, stay: a file that would replace one, as its path is the same as the id, is reported in
        `SyncReport.failed`, and so is one with an id that another file, or another row of it, has. But if the
        file of the other folder is gone, as when a folder was moved, its document becomes one of this folder. A
        folder of the index inside `folder` is left out.

        In an index without documents the fields of files that `build` makes searchable become so, if `open` was
        given no other ones.

        Args:
            folder: of the files.
            id: column of the ids in the tables of the folder, see `add`; the id of a row is ``table.csv#id``, or
                ``table.csv#number`` without such a column. All rows of a table that has changed are read again.
                One that has not changed is read only if the index has shards, to find rows that a crash kept out.
            text: column of the texts, or several.
            title: column of the titles.
            readers: functions that read files of other kinds; see `build`.
            dry_run: whether to change nothing and only report; works on an index opened for reading.
            remove_all: whether to continue if none of the files that were indexed from the folder is left.
            include: patterns, as in ``.gitignore``, of the only files that are read; others are treated as gone.
            exclude: patterns, as in ``.gitignore``, of files and folders that are left out, too.
            vectors_up_to: largest size of a file, in bytes or "1MB", of which vectors are computed. Documents of
                larger ones are found by words alone: their vectors are zeros, and ``file.indexed`` in their
                metadata is "words". A file of which that is not true any more is read again. None: no limit.
            progress: see `add`; each file that is left counts as one document of the total.

        Raises:
            InvalidSetting: there is no such folder, it is the folder of the index, additions or deletions are not
                committed yet, none of the files that the index has of the folder is there, `vectors_up_to` is not
                a size, or the index has the metric "l2", by which zeros are near to much.
            CommitFailed: an I/O error occurred; the index is as at the last commit, and so is each of its shards
                that a note does not name.
            EncoderMismatch: the vectors of the index are of another encoder.
            ReadOnlyIndex: the index was not opened writable, and `dry_run` is false.
        """
        writer = None if checked_flag(dry_run, "dry_run") else self._require_writer()
        view = self._view.get()
        encoder = None
        try:
            view.check_encoder()
            encoder = view.encoder
        except EncoderMismatch:
            if writer is not None:
                raise
        plan = folder_sync()(
            checked_path(folder, "folder"),
            self._directory.path,
            [each.snapshot for each in view.partitions],
            Columns.of(id, text, title),
            checked_flag(remove_all, "remove_all"),
            encoder,
            readers,
            (include, exclude),
            memory_bytes(vectors_up_to, "vectors_up_to"),
        )
        if writer is None:
            return plan.report()
        if not (self._has_given_fields or view.settings.searchable) and view.is_new and not writer.has_changes():
            self._change_settings(writer, searchable=FILE_FIELDS)
        with Progress(progress, "adding") as bar:
            report = plan.carry_out(writer, self._thresholds.sync_s, bar.update)
        self._follow()
        return report

    @finishes_before_exit
    def delete(
        self,
        ids: Iterable[str] | str | None = None,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002  # as in search
    ) -> int:
        """Delete documents in the next commit and return how many; give either ids or a filter.

        Documents that were added and not committed yet are deleted too, and only their newest versions count: a
        document that one of them replaces is not compared with the filter. Documents added afterwards stay.

        Args:
            ids: one id, or several; ids that no document has are ignored.
            filter: which documents to delete, see `search`; not empty, as an empty filter matches every document.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidSetting: `ids` is not a str or an iterable of str, or both or neither are given; nothing was
                deleted.
            InvalidFilter: the filter is empty or malformed, or compares values of different types; nothing was
                deleted.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        if (ids is None) == (filter is None):
            raise InvalidSetting("ids or a filter say what to delete", expected="one of them")
        if filter is None:
            return writer.delete(id_list(ids))
        _check_not_empty(filter, "delete(index.ids())")
        condition = parse_filter(filter)
        kinds = writer.find_kinds(condition)
        if kinds is not None:
            self._view.get().check_kinds(condition, kinds)
        return writer.delete_matching(condition)

    @finishes_before_exit
    def update_metadata(
        self,
        ids: Iterable[str] | str | Mapping[str, Mapping[str, object]] | None = None,
        changes: Mapping[str, object] | None = None,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002  # as in search
    ) -> int:
        """Change metadata of documents in the next commit, without encoding them again; return how many there are.

        Titles, texts and vectors stay unchanged, to the last bit. At the commit the documents are copied to a
        new segment, and the old copies count as deleted, so many changes should be in one commit.

        Args:
            ids: of committed documents, or a mapping of ids to the changes of each; ids that no document has are
                ignored.
            changes: fields and their new values; None removes a field. Other fields stay. ``"stock.count"`` is a
                field inside of the mapping ``stock``, unless the document has a field of that name; the value of a
                field without a dot is replaced as a whole.
            filter: instead of ids, committed documents that pass it; see `search`. Those that were added again
                since are left out. It is not empty, as an empty filter matches every document.

        Raises:
            InvalidSetting: neither or both of ids and filter are given, no changes are, the name of a part of a
                document such as "title" is not a metadata field of a document, a path leads through a value that
                is not a mapping, or a document of these ids was added and is not committed yet. Nothing is
                changed, as after the errors below.
            InvalidDocument: a value cannot be stored, or the metadata of a document becomes too large.
            InvalidFilter: the filter is empty or malformed, or compares values of different types.
            FormatError: a document is damaged.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        if (ids is None) == (filter is None):
            raise InvalidSetting("documents are selected either by ids or by a filter", expected="one of the two")
        _check_not_empty(filter, "update_metadata(index.ids(), changes)")
        together: dict[str, Mapping[str, object]] = {}
        if isinstance(ids, Mapping):
            if changes is not None:
                expected = "ids with changes, or ids and changes"
                raise InvalidSetting("changes are given twice", expected=expected, setting="changes")
            for doc_id, own in zip(id_list(list(ids)), ids.values(), strict=True):
                try:
                    together |= writer.check_updates([doc_id], checked_changes(own, doc_id), is_skipping=False)
                except (InvalidDocument, InvalidSetting) as error:
                    error.document = doc_id
                    raise
        else:
            checked = checked_changes(changes)
            chosen = self.ids(filter=filter) if ids is None else id_list(ids)
            together = writer.check_updates(chosen, checked, is_skipping=ids is None)
        writer.update(together)
        return len(together)

    @finishes_before_exit
    def add_indexes(self, paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> AddIndexesReport:
        """Take all segments of other indexes into this one, in one commit, without encoding anything again.

        Files are hard-linked if the file system supports that, or else copied; the other indexes are not changed,
        may be in use, and may be deleted afterwards. They must have the encoder and, except for `k1`, `b` and
        `seed`, the settings of this index; see `build(..., like=)`. If they have shards, all of them are taken. Of
        documents with the same id the last one stays: one of another index replaces one of this index, and one of
        a later index that of an earlier one. What is deleted in another index is left out, and nothing else is
        deleted because of it.

        Args:
            paths: folders of the other indexes.

        Raises:
            IndexNotFound: there is no index at a path.
            EncoderMismatch: an index has another encoder; nothing was added.
            InvalidSetting: an index has other settings, is this index, or is not a path; this index is sharded,
                because its documents are divided by their ids; or changes of this index are not committed.
            FormatError: a file of an index is damaged; nothing was added. Sections that were not read are not
                checked, see `verify`.
            CommitFailed: an I/O error occurred; nothing was added.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        if writer.n_shards is not None:
            raise InvalidSetting(
                "indexes cannot be added to a sharded index, whose documents are divided by their ids; add them to"
                " an index without shards, or build it again",
                path=self._directory.path,
            )
        report = add_indexes(writer, self._directory, paths)
        self._follow()
        return report

    @finishes_before_exit
    def commit(self) -> CommittedGeneration:
        """Make all additions and deletions visible and durable in one step; return the generation, an integer.

        Its attribute `n_replaced` is how many of the added documents later ones with the same id replaced.

        Afterwards segments are merged in the background, if there are many or much in them is deleted; each merge
        makes a generation of its own. Exact answers (see `Hits.exactness`) do not change by a merge, to the last
        bit of each score.

        Raises:
            CommitFailed: nothing was committed; additions and deletions are kept, and `commit` can be tried again.
            DurabilityUnknown: committed, but it may not survive a power loss; or the outcome is unknown.
            MergeFailed: committed, but a background merge failed; it is tried again after later commits.
            FormatError: committed, but a background merge found a damaged file. Its segment is left unchanged, and
                others are merged without it.
            InvalidSetting: committed, but the memory limit is now too low for the index. A note says so.
        """
        writer = self._require_writer()
        generation = CommittedGeneration(*writer.commit())
        try:
            self._follow()
            writer.raise_merge_failure()
        except Exception as error:
            error.add_note(f"Generation {generation} was committed.")
            raise
        return generation

    @finishes_before_exit
    def merge(self, retrain: bool = False, *, progress: ProgressSetting = False) -> int:
        """Merge all segments into as few as possible, without deleted documents; return the generation.

        Commits also merge in the background when there are many segments. Uncommitted changes are kept.

        Args:
            retrain: whether to train a new quantizer on the stored centroids and encode them again, for an index
                whose documents have drifted from those it was trained on (see `stats`).
            progress: see `add`; it is reported when segments have been merged into one.

        Raises:
            FormatError: a file is damaged; the index is unchanged.
            InvalidSetting: `retrain` on an index of codes alone; nothing was done. A quantizer trained on decoded
                codes finds fewer neighbors than the old one, so such an index has to be built again.
            MergeFailed: an I/O error occurred; the last commit is still current.
        """
        with Progress(progress, "merging") as bar:
            return self._require_writer().merge(checked_flag(retrain, "retrain"), bar.update)

    def reencode(
        self, encoder: str | os.PathLike[str] | Encoder | None, *, progress: ProgressSetting = False
    ) -> int:
        """Encode all documents again with another encoder, from their stored texts; return the new generation.

        Vectors that came with documents are replaced, also those of an index without an encoder. Ids, texts,
        metadata and all settings that do not depend on the encoder stay; the representation is that for which the
        new encoder was trained, if it states one. The old generation stays in use, also by other processes, until
        the new one is committed, in one step; this object then uses the new encoder. Others must be opened again
        with it. Every 30 seconds the work is saved in the folder ``reencoding`` of the index: after an error or a
        crash the next call with the same encoder continues, and encodes only what is missing or has changed.
        Delete that folder to give up instead.

        Args:
            encoder: as in `open`. If it is the encoder of the index, nothing is done.
            progress: True, False, None (only on a terminal), or a function of (documents done, total).

        Raises:
            InvalidSetting: the index is sharded, whose shards are not committed together; the encoder does not fit
                the settings of the index; or changes are not committed.
            InvalidDocument: a document has no text, or the encoder has no vector for it.
            CommitFailed: an I/O error occurred. After an error the index is unchanged.
            ReadOnlyIndex: the index was not opened writable.
        """
        return self._rewrite(open_encoder(encoder), progress)

    @finishes_before_exit
    def upgrade(self, *, progress: ProgressSetting = False) -> int:
        """Divide the documents of an index of an earlier version into passages; return the new generation.

        Nothing is encoded. The passages and their words are those of a new index. So is all of a document of up to
        260 words; a longer one keeps its vectors, which were computed in windows of the whole document and without
        its title, and each passage has a mean of its own. Documents that came with vectors are divided by their
        spans (see docs/passages.md). It is committed in one step, and continued after an error, as in `reencode`.
        Nothing is done if the index divides documents already.

        Args:
            progress: as in `reencode`.

        Raises:
            InvalidSetting: the index is sharded, stores codes alone, or has an encoder and vectors of another
                representation than "pieces"; or changes are not committed.
            CommitFailed: an I/O error occurred. After an error the index is unchanged.
            ReadOnlyIndex: the index was not opened writable.
        """
        self.check_encoder()
        return self._rewrite(self._view.get().writing_encoder, progress, keeps_vectors=True)

    def _rewrite(self, encoder: Encoder, progress: ProgressSetting, *, keeps_vectors: bool = False) -> int:
        writer = self._require_writer()
        if writer.n_shards is not None:
            raise InvalidSetting(
                "the documents of a sharded index cannot be written again: its shards are not committed together; "
                "build it again",
                path=self._directory.path,
            )
        threads, thresholds = self._n_threads, self._thresholds
        work = Reencoding(writer, self._directory, encoder, threads, thresholds, progress, keeps_vectors)
        generation = work.run()
        self._view.follow(self._written, encoder)
        return generation

    @finishes_before_exit
    def set_dense_weight(self, weight: float | None) -> int:
        """Store the weight of dense scores that hybrid searches use by default, and return the generation.

        It is committed at once. The command `quarry tune` chooses a weight by judged queries.

        Args:
            weight: from 0 to 1; None: the default of searches, see `SearchOptions`.

        Raises:
            InvalidSetting: it is out of range, or there are additions or deletions that are not committed.
            CommitFailed: nothing was committed.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer = self._require_writer()
        checked = SearchOptions(dense_weight=weight).dense_weight
        chosen = None if checked is None else float(checked)
        generation = writer.change_manifests(lambda manifest: manifest.with_dense_weight(chosen))
        self._follow()
        return generation

    @finishes_before_exit
    def set_synonyms(self, synonyms: Mapping[str, Sequence[str]]) -> int:
        """Store what else stands for words of queries, in place of what was stored; return the generation.

        It is committed at once; nothing is indexed again. With ``{"tv": ["television", "flat screen"]}`` a query
        with "tv" finds documents with any of these as if they were one word, in hybrid and lexical mode, and one
        with "television" finds no others than before. Words are compared as the index compares them:
        "Televisions", too. An alternative of several words is in passages that have all of them. A key of several
        words is a word of its own beside them. `Hit.terms` has the alternatives of a word joined by "|".

        Args:
            synonyms: lists of up to 64 texts by words; up to 10,000 words, of 1 MiB together.

        Raises:
            InvalidSetting: they are something else, a text has no word but stop words, or there are additions or
                deletions that are not committed.
            CommitFailed: nothing was committed.
            ReadOnlyIndex: the index was not opened writable.
        """
        writer, settings = self._require_writer(), self._view.get().settings
        entries = checked_synonyms(synonyms, settings.language, settings.analysis_rules)
        return self._change_settings(writer, synonyms=entries)

    def _change_settings(self, writer: IndexWriter, **changed: object) -> int:
        generation = writer.change_manifests(lambda manifest: manifest.with_settings(**changed))
        self._follow()
        return generation

    @property
    def synonyms(self) -> dict[str, list[str]]:
        """What else stands for words of queries; see `set_synonyms`."""
        return {word: list(others) for word, others in self._view.get(to_read=True).settings.synonyms}

    @finishes_before_exit
    def rollback(self) -> None:
        """Discard additions and deletions since the last commit."""
        self._require_writer().rollback()

    @finishes_before_exit
    def optimize(self, *, progress: ProgressSetting = False) -> int:
        """Write HNSW graphs for segments of 20,000 centroids or more that have none; return how many were written.

        This takes minutes for millions of centroids, and memory for their vectors; searches in this and other
        processes continue meanwhile. Graphs cover committed documents only, so commit first. A graph is optional
        data: it can be deleted and written again at any time.

        Args:
            progress: see `add`; it is reported when a graph has been written.

        Raises:
            MergeFailed: an I/O error occurred, for example on a full disk; no incomplete file is left.
            ReadOnlyIndex: the index was not opened writable.
        """
        self._require_writer()
        with Progress(progress, "writing graphs of") as bar:
            parts, graph_rows = ProgressParts(bar.update), self._thresholds.graph_rows
            before = [each.snapshot for each in self._view.get().partitions]
            n_written = sum(write_graphs(each, graph_rows, self._n_threads, parts.part()) for each in before)
            for old, new in zip(before, self._view.reopen(), strict=True):
                drop_graphs(old, new)
            return n_written

    @finishes_before_exit
    def refresh(self) -> bool:
        """Answer from the newest generation from now on; return whether there was a newer one.

        An index that replaced this one, by copying or building, counts as newer, even if its generation is lower,
        and whether it is sharded or not.

        Raises:
            IndexNotFound: there is no index any more.
            FormatError: a file of the newest generation is damaged.
        """
        return self._view.refresh()

    @property
    def encoder(self) -> Encoder:
        """The encoder of texts: the one given to `open`, or the bundled one that the index has."""
        return self._view.get().encoder

    def check_encoder(self) -> None:
        """Raise now, and not at the first search, if the index has another encoder than it was opened with.

        An index that was built without an encoder is searched by words and by given vectors, and needs none.

        Raises:
            EncoderMismatch: it has another one.
        """
        view = self._view.get()
        if view.has_encoder:
            view.check_encoder()

    def documents(
        self,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002  # as in search
        offset: int = 0,
        limit: int | None = None,
        sort: str | Sequence[str] | None = None,
    ) -> Iterator[Document]:
        """Iterate over the documents in the order in which they are stored, in memory that does not grow.

        The order is the same until the index answers from another generation (see `refresh`), and a merge may
        change it. An iterator reads the generation that it was made for, even if the index is changed,
        refreshed or closed meanwhile. ``for document in index`` iterates over all documents.

        Args:
            filter: only documents that pass it; see `search`.
            offset: number of documents to leave out at the beginning; their texts are not read.
            limit: largest number of documents; None: no limit.
            sort: fields of the metadata whose values decide the order, as in `search`; equal documents are in the
                order of their ids. At most 1,048,576 documents are sorted, and memory grows with their number.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidFilter: the filter is malformed, or compares values of different types.
            InvalidSetting: `offset` or `limit` is not an integer of 0 or more; `sort` is not a field that
                documents have, or there are too many documents to sort.
        """
        view = self._view.get(to_read=True)
        stored = self._stored(filter, view)
        if sort is None:
            return stored.documents(offset, limit)
        n_skipped, n_most = checked_range(offset, limit)
        order = view.sort(SearchOptions(filter=filter, sort=sort), n_skipped + n_most)
        first = np.cumsum([0, *(len(each.segments) for each in view.partitions)])
        numbers = first[order.partitions] + order.documents.segments
        return stored.in_order(numbers[n_skipped:][:n_most], order.documents.docs[n_skipped:])

    def ids(
        self,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002
        offset: int = 0,
        limit: int | None = None,
    ) -> Iterator[str]:
        """Iterate over the ids of documents without reading the documents; see `documents`."""
        return self._stored(filter, self._view.get(to_read=True)).ids(offset, limit)

    def __iter__(self) -> Iterator[Document]:
        return self.documents()

    @finishes_before_exit
    def verify(self) -> VerifyReport:
        """Read every byte of the current generation, or of the newest if its files were deleted.

        Raises:
            FormatError: files are damaged; the message lists all errors, and `findings` holds them.
        """
        return verify_index(self._directory, self._view.get().partitions[0].manifest)

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
            InvalidSetting: there are other files in the folder at `path`.
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
        with contextlib.ExitStack() as closing:
            closing.callback(self._device.trim)
            if writer:
                closing.callback(writer.close, abandon=abandon)  # last: it deletes what is not open then
                if writer.has_changes() and not abandon:
                    _log.warning("%s: closed without a commit; additions and deletions are discarded", self)
            self._view.close()

    def _open_writer(self, encoder: Encoder, wait_s: float) -> IndexWriter:
        """Open a writer that does not keep this object alive: if it is dropped, the lock is released with it."""
        this = weakref.ref(self)

        def follow() -> None:
            index = this()
            if index is not None:
                index._follow()

        return IndexWriter(
            self._directory,
            encoder,
            self._n_threads,
            representation=self._representation,
            thresholds=self._thresholds,
            merges=True,
            after_merge=follow,
            wait_s=wait_s,
        )

    def _check_opened(self, new: NewIndex | None, *, requires_encoder: bool) -> None:
        """Raise unless the index has the encoder and the settings that it was opened with."""
        view = self._view.get()
        if requires_encoder:
            view.check_encoder()
        given, stored = self._representation, view.settings
        has = stored.representation, stored.representation_settings
        if given is not None and (given.name, given.settings()) != has:
            raise InvalidSetting(
                "the index exists, with another value of representation",
                path=self._directory.path,
                expected=f"{given.name} with {given.settings()}",
                actual=" with ".join(map(str, has)),
            )
        if new is not None:
            new.check(view.settings, view.metric, view.n_shards, self._directory.path)

    def _follow(self) -> None:
        """Answer from the generation that the writer made last."""
        self._view.follow(self._written)

    def _written(self) -> list[Snapshot]:
        writer = self._writer
        return [] if writer is None else writer.snapshots()

    def _require_writer(self) -> IndexWriter:
        self._view.get()
        writer = self._writer
        if writer is None and self._is_writable:  # another thread is closing it
            raise IndexClosed("the index is closed", path=self._directory.path)
        if writer is None:
            raise ReadOnlyIndex(
                "the index was opened for reading; open it with writable=True", path=self._directory.path
            )
        return writer

    def _stored(self, only: Mapping[str, object] | None, view: View[OpenPartition]) -> StoredDocuments:
        condition = None if only is None else parse_filter(only)
        view.check_condition(condition)
        segments = [segment for each in view.partitions for segment in each.segments]
        allowed = [docs for each in view.partitions for docs in each.filter.allowed(condition)]
        return StoredDocuments(segments, allowed, self._directory.path)


def _with_encoder(documents: Iterable[Document], view: View[OpenPartition]) -> Iterator[Document]:
    """Yield documents; raise EncoderMismatch before one without vectors if the encoder is another one."""
    is_checked = not view.has_encoder
    for document in documents:
        if not is_checked and document.vectors is None:
            view.check_encoder()
            is_checked = True
        yield document


def _check_not_empty(filter_: Mapping[str, object] | None, call: str) -> None:
    """Refuse to change all documents because of a filter that is empty by mistake.

    Raises:
        InvalidFilter: the filter is empty.
    """
    if isinstance(filter_, Mapping) and not filter_:
        raise InvalidFilter(
            "an empty filter matches every document", expected=f"a condition, or {call} for all of them"
        )
