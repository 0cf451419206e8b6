"""`build`: makes an index of documents."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Unpack

from quarry.engine.arguments import checked_flag, checked_integer
from quarry.engine.building.plan import BuildPlan
from quarry.engine.building.workers.attempt import BuildAttempt, collect_staging
from quarry.engine.building.workers.job import WrittenBatch, divide
from quarry.engine.building.workers.worker_processes import WorkerProcesses
from quarry.engine.documents.document import FILE_FIELDS, Document
from quarry.engine.documents.reader import (
    DocumentSource,
    DocumentStream,
    Readers,
    is_folder_of_files,
    read_documents,
)
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.encoding.opening import EncoderSource
from quarry.engine.indexer.build_folder import BuildFolder
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.new_shards import NewShards
from quarry.engine.options import BuildKeywords, OpenOptions
from quarry.engine.progress import Progress, ProgressSetting, count_items
from quarry.engine.representation.base import Representation
from quarry.engine.thresholds import Thresholds, checked_thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexExists, IndexNotFound, InvalidDocument, InvalidSetting
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.shard_set import MAX_SHARDS, ShardSet, has_shard_set
from quarry.formats.system_errors import checked_path

__all__ = ["BuildReport", "build", "checked_shards", "open_new_writer", "report_build"]

_MAX_WORKERS = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """Numbers about a build.

    Attributes:
        n_documents: documents in the index.
        n_replaced: documents that a later one with the same id replaced.
        n_skipped: documents left out because they were not valid (with `skip_invalid`), files without text,
            and tables of a folder that hold no documents.
        skipped: reasons for the first ten of them.
        n_centroids: number of vectors stored.
        n_tokens: number of tokens encoded.
        size_bytes: the size of all files of the index in bytes.
        duration_s: wall time of the whole build.
    """

    n_documents: int
    n_replaced: int
    n_skipped: int
    skipped: tuple[str, ...]
    n_centroids: int
    n_tokens: int
    size_bytes: int
    duration_s: float


def build(  # noqa: PLR0913  # keywords, each with a default
    docs: DocumentSource,
    path: str | os.PathLike[str],
    *,
    id: str | None = None,  # noqa: A002  # the field
    text: str | Sequence[str] | None = None,
    title: str | None = None,
    vectors: str | None = None,
    readers: Readers = None,
    encoder: EncoderSource = None,
    dim: int | None = None,
    representation: str | Representation | None = None,
    overwrite: bool = False,
    skip_invalid: bool = False,
    progress: ProgressSetting = None,
    threads: int | None = None,
    shards: int | None = None,
    workers: int | None = None,
    like: str | os.PathLike[str] | None = None,
    thresholds: Thresholds | None = None,
    **settings: Unpack[BuildKeywords],
) -> BuildReport:
    """Build an index.

    Documents are read, encoded and written one after another: memory is bounded except for less than 32 bytes per
    document. There is no new index until the build is complete: an index that is replaced stays readable, and an
    interrupted build leaves it unchanged. If several processes build into one folder at once, the first to lock it
    continues and the others fail before they read a document.

    Args:
        docs: an iterable of texts or of mappings {"id"?, "text", "title"?, "metadata"?, "vectors"?, "spans"?}; a
            DataFrame or another table; or the path of a table, of JSON, of a file that is a document or of a
            folder of such files (docs/documents.md). A document without an id gets a random
            one; of documents with the same id the last one is kept. "vectors", (dim,) or (n, dim) numbers, are
            stored as the vectors of the document, which is then not encoded and may have no text; "spans" are n
            pairs (start, end): the characters of title, line break and text that each vector stands for.
        path: folder of the index; created if it is missing.
        id: column of a table, or of the tables in a folder, that has the ids; None: "id" or "_id", if there is
            one. An error, like the next three, if the source has no columns.
        text: column of the texts, or several, whose values are joined by line breaks; None: "text".
        title: column of the titles; None: "title", if there is one. The other columns become metadata.
        vectors: column of the vectors; None: "vectors", if there is one. With any of these four, mappings and
            objects of JSON are rows too.
        readers: functions that read files, by the endings of these, such as ``{".gpx": read_gpx}``, for kinds of
            files that Quarry and installed packages do not read; see `quarry.readers`. Only with a path.
        encoder: a bundle's folder, the name of a bundled encoder or of one that an installed package has
            registered, an `Encoder`, a model of another library that `FunctionEncoder` recognizes, or None for the
            bundled default, or the bundled encoder of the index at `like`.
        dim: length of the vectors of an index without an encoder: every document has vectors, and a text is
            searched in lexical mode, or with `vector=`. None: there is an encoder.
        representation: "pieces", "kmeans", "first_m", "mean", "cls", "pooled", "passages", or one of the classes,
            or any `Representation`, or the name of one that an installed package has registered.
            One that does not fit the encoder's pooling is refused. None for what the encoder was trained for, or
            else "pieces" if it pools by the mean and "passages" otherwise.
        overwrite: whether an index that exists is replaced.
        skip_invalid: whether invalid documents are left out and counted, instead of failing.
        progress: True, False, None (only on a terminal), or a function of (documents done, total or None).
        threads: threads for encoding; None: one for each available CPU.
        shards: number of folders that the documents are divided among, by a hash of their ids; None: no shards.
            The number is fixed: to change it, build the index again with `overwrite`.
        workers: number of processes that encode documents, each on one thread; None: this process alone. They are
            started by "spawn", so a script has to call `build` under ``if __name__ == "__main__":``. `threads` are
            then used to join what they write. The index is the same if no id occurs twice.
        like: folder of an index with the same encoder. The new one gets its representation and settings, which
            then cannot be given, and its newest quantizer instead of one of its own, so that codes of both can be
            compared and `Engine.add_indexes` can join them. The number of shards is not copied.
        thresholds: advanced settings, such as the memory of writers. None: the defaults.
        **settings: the fields of `quarry.engine.options.BuildOptions`, which are stored with the index.

    Raises:
        IndexExists: there is an index, and `overwrite` is false, or one has shards and the other has not.
        IndexLocked: another process, or another part of this one, is writing to it.
        IndexNotFound: there is no index at `like`.
        EncoderMismatch: the index at `like` has another encoder.
        InvalidDocument: a document is not valid.
        EncodingFailed: an embedding function failed; there is no new index.
        InvalidSetting: a setting is not valid.
        AccessFailed: the operating system refuses the folder, a file of the documents or of the encoder.
        CommitFailed: an I/O error occurred; there is no new index.
        WorkerFailed: processes of `workers` ended again and again, for example for lack of memory.
    """
    started = time.perf_counter()
    if like is None and is_folder_of_files(docs):
        settings = {"searchable": FILE_FIELDS, **settings}
    if like is None:
        plan = BuildPlan.of(encoder, representation, settings, dim)
    else:
        given = {"dim": dim, "representation": representation, **settings}
        plan = BuildPlan.like(checked_path(like, "like"), encoder, given)
    resources = OpenOptions(threads=threads, thresholds=checked_thresholds(thresholds))
    n_shards, n_workers = checked_shards(shards), _checked_workers(workers)
    columns = Columns.of(id, text, title, vectors)
    is_skipping = checked_flag(skip_invalid, "skip_invalid")
    stream = read_documents(docs, is_skipping, columns, readers)
    folder = BuildFolder(checked_path(path, "path").absolute(), checked_flag(overwrite, "overwrite"))
    with folder, open_new_writer(folder, plan, resources, n_shards) as writer:
        with Progress(progress, "building") as bar, contextlib.closing(stream):
            if n_workers is None:
                writer.add(count_items(stream, bar, stream.n_expected), stream.skip)
                committed = writer.commit()
            else:
                documents = writer.choose_storage(stream)
                with BuildAttempt(folder.path, writer, plan, resources.thresholds, is_skipping) as attempt:
                    committed = attempt.commit(_write_in_processes(attempt, documents, stream, bar, n_workers))
        return report_build(folder, writer, committed, stream.n_skipped, stream.first_errors, started)


def report_build(
    folder: BuildFolder,
    writer: IndexWriter,
    committed: tuple[int, int],
    n_skipped: int,
    skipped: Sequence[str],
    started: float,
) -> BuildReport:
    """Return numbers about a build.

    Args:
        folder: the folder of the index.
        writer: the writer of the index.
        committed: what its commit returned.
        n_skipped: documents that were left out.
        skipped: reasons for the first of them.
        started: when the build began, by `time.perf_counter`.
    """
    n_documents, size_bytes = _measure_index(Directory(folder.path), committed[0], writer.n_shards)
    _log.info(
        "%s: built generation %d, %d documents in %d bytes", folder.path, committed[0], n_documents, size_bytes
    )
    return BuildReport(
        n_documents=n_documents,
        n_replaced=committed[1],
        n_skipped=n_skipped,
        skipped=tuple(skipped),
        n_centroids=writer.n_rows,
        n_tokens=writer.n_tokens,
        size_bytes=size_bytes,
        duration_s=time.perf_counter() - started,
    )


def open_new_writer(
    folder: BuildFolder, plan: BuildPlan, resources: OpenOptions, n_shards: int | None
) -> contextlib.closing[IndexWriter]:
    """Open the writer of a new index, whose first commit creates it; delete what attempts before have left.

    Args:
        folder: the folder of the index, locked.
        plan: what the index is made with.
        resources: threads and thresholds.
        n_shards: number of shards; None: no shards.

    Raises:
        IndexExists: there is an index with shards, and the new one has none, or the other way round.
    """
    collect_staging(folder.path, folder.lock)
    directory = Directory(folder.path, limits=resources.thresholds.writing)
    _check_kind(directory, n_shards)
    make = IndexWriter if n_shards is None else partial(NewShards, n_shards=n_shards)
    writer = make(
        directory,
        plan.encoder,
        resources.n_threads,
        representation=plan.representation,
        fresh=plan.settings,
        thresholds=resources.thresholds,
        lock=folder.lock,
    )
    if plan.quantizer is not None:
        writer.use_quantizer(plan.quantizer)
    return contextlib.closing(writer)


def _write_in_processes(
    attempt: BuildAttempt, documents: Iterable[Document], stream: DocumentStream, bar: Progress, n_workers: int
) -> list[WrittenBatch]:
    """Encode documents with several processes; return what they have written."""
    written: list[WrittenBatch] = []
    n_done = 0
    with WorkerProcesses(attempt.job, n_workers) as processes:
        for batch in processes.write(divide(documents, n_workers)):
            written.append(batch)
            for message in batch.skipped:
                stream.skip(InvalidDocument(message))
            stream.n_skipped += batch.n_skipped - len(batch.skipped)
            n_done += batch.n_documents
            bar.update(n_done, stream.n_expected())
    return written


def _checked_workers(workers: object) -> int | None:
    n_workers = None if workers is None else checked_integer(workers, "workers", 1, _MAX_WORKERS)
    if workers is not None and multiprocessing.current_process().daemon:
        raise InvalidSetting(
            "a daemonic process cannot start others",
            expected="workers=None, or a process that is not daemonic, unlike those of multiprocessing.Pool",
            actual=f"workers={workers}",
        )
    return n_workers


def checked_shards(shards: object) -> int | None:
    """Return a number of shards, or None for an index without shards.

    Raises:
        InvalidSetting: it is out of range.
    """
    return None if shards is None else checked_integer(shards, "shards", 1, MAX_SHARDS)


def _check_kind(directory: Directory, n_shards: int | None) -> None:
    """Refuse to replace an index with shards by one without, or the other way round."""
    if n_shards is None:
        if has_shard_set(directory):
            raise IndexExists(
                "the index there has shards: build one with shards=..., or delete the folder", path=directory.path
            )
        return
    with contextlib.suppress(IndexNotFound):
        generation = find_latest_generation(directory)
        raise IndexExists(
            "the index there has no shards: build one without, or delete the folder",
            path=directory.path,
            actual=f"generation {generation}",
        )


def _measure_index(directory: Directory, generation: int, n_shards: int | None) -> tuple[int, int]:
    """Return the number of documents and the size of all files of an index that was built."""
    if n_shards is not None:
        shard_set = ShardSet.load(directory, generation)
        shards = [Directory(directory.path / folder) for folder in shard_set.folders]
        sizes = [_measure_index(shard, find_latest_generation(shard), None) for shard in shards]
        own_bytes = directory.size_bytes(shard_set.name)
        return sum(n_docs for n_docs, _ in sizes), own_bytes + sum(n_bytes for _, n_bytes in sizes)
    manifest = Manifest.load(directory, generation)
    return manifest.n_documents, sum(map(directory.size_bytes, manifest.file_names()))
