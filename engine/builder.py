"""`build`: documents in, an index out."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

from quarry.engine.analysis.analyzer import RULES, Analyzer
from quarry.engine.arguments import checked_flag
from quarry.engine.documents.document import Document
from quarry.engine.documents.reader import DocumentSource, DocumentStream, read_documents
from quarry.engine.encoding.encoder import Encoder, open_encoder, trained_representation, vector_kinds
from quarry.engine.encoding.trained import trained_quantizer, trained_settings
from quarry.engine.indexer.build_folder import BuildFolder
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.options import BuildKeywords, BuildOptions, OpenOptions
from quarry.engine.progress import Progress, ProgressSetting
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import check_readable, representation_for, representation_from
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import IndexSettings, Manifest
from quarry.formats.system_errors import checked_path

__all__ = ["BuildReport", "build"]


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build did.

    Attributes:
        n_documents: documents in the index.
        n_replaced: documents that a later one of the same id replaced.
        n_skipped: documents left out because they were not valid (with `skip_invalid`).
        skipped: why, for the first ten of them.
        n_centroids: vectors stored.
        n_tokens: tokens encoded.
        size_bytes: of all files of the index.
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


def build(
    docs: DocumentSource,
    path: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] | Encoder | None = None,
    representation: str | Representation | None = None,
    overwrite: bool = False,
    skip_invalid: bool = False,
    progress: ProgressSetting = None,
    threads: int | None = None,
    **settings: Unpack[BuildKeywords],
) -> BuildReport:
    """Build an index.

    Documents are read, encoded and written as they come: memory stays bounded but for less than 32 bytes a
    document. Until the build is complete there is no new index: one that is replaced stays readable, and an
    interrupted build leaves it, or nothing. If several processes build into one folder at once, the first to lock
    it goes on and the others fail before they read a document.

    Args:
        docs: an iterable of texts or of mappings {"id", "text", "title"?, "metadata"?}; or a path: .jsonl,
            .jsonl.gz, .jsonl.zst, or a folder in BEIR format. A document without an id gets a random one; of
            documents with the same id the last one stays.
        path: folder of the index; made where it is missing.
        encoder: a bundle's folder, an `Encoder`, or None for the bundled all-MiniLM-L6-v2.
        representation: "pieces", "kmeans", "first_m", "mean", "cls", "pooled", or one of the classes; None for
            what the encoder was trained for, or else "pieces" ("pooled" where it gives no token vectors).
        overwrite: replace an index that is there.
        skip_invalid: leave invalid documents out and count them, instead of failing.
        progress: True, False, None (only on a terminal), or a function of (documents done, total or None).
        threads: for encoding; None: one for each CPU this process may use.
        **settings: fields of `quarry.engine.options.BuildOptions`: `centroids`, `code_bytes`,
            `language`, `k1`, `b`, `seed`.

    Raises:
        IndexExists: there is an index and `overwrite` is false.
        IndexLocked: another process, or another part of this one, is writing to it.
        InvalidDocument: a document is not valid.
        InvalidSetting: a setting is not valid.
        AccessFailed: the system refuses the folder, a file of the documents or of the encoder.
        CommitFailed: the system failed while documents were added; there is no new index.
    """
    started = time.perf_counter()
    index_settings, opened = _settings(encoder, representation, settings)
    resources = OpenOptions(threads=threads)
    stream = read_documents(docs, skip_invalid=checked_flag(skip_invalid, "skip_invalid"))
    folder = BuildFolder(checked_path(path, "path").absolute(), checked_flag(overwrite, "overwrite"))
    with folder, _writer(folder, index_settings, opened, resources) as writer:
        with Progress(progress, "building") as shown, contextlib.closing(stream):
            writer.add(_counted(stream, shown), stream.skip)
        generation, n_replaced = writer.commit()
        directory = Directory(folder.path)
        manifest = Manifest.load(directory, generation)
        return BuildReport(
            n_documents=sum(segment.n_docs - segment.n_deleted for segment in manifest.segments),
            n_replaced=n_replaced,
            n_skipped=stream.n_skipped,
            skipped=tuple(stream.first_errors),
            n_centroids=writer.n_rows,
            n_tokens=writer.n_tokens,
            size_bytes=sum(map(directory.size_bytes, manifest.file_names())),
            duration_s=time.perf_counter() - started,
        )


def _writer(
    folder: BuildFolder, settings: IndexSettings, encoder: Encoder, resources: OpenOptions
) -> contextlib.closing[IndexWriter]:
    directory = Directory(folder.path)
    return contextlib.closing(
        IndexWriter(directory, encoder, resources.n_threads, fresh=settings, lock=folder.lock)
    )


def _counted(stream: DocumentStream, progress: Progress) -> Iterator[Document]:
    """The documents of a stream, each counted as done when the next one is asked for."""
    for number, document in enumerate(stream, 1):
        yield document
        progress.update(number, stream.n_expected())


def _settings(
    encoder: str | os.PathLike[str] | Encoder | None,
    representation: str | Representation | None,
    settings: BuildKeywords,
) -> tuple[IndexSettings, Encoder]:
    options = BuildOptions.of(settings)
    analyzer = Analyzer(options.language)
    opened = open_encoder(encoder)
    chosen = _representation(representation, opened)
    return (
        IndexSettings(
            dim=opened.dim,
            representation=chosen.name,
            representation_settings=chosen.settings(),
            beta=opened.beta,
            centroids=options.centroids,
            code_bytes=_code_bytes(options, opened),
            language=analyzer.language,
            analysis_rules=RULES,
            k1=float(options.k1),
            b=float(options.b),
            seed=options.seed,
        ),
        opened,
    )


def _code_bytes(options: BuildOptions, encoder: Encoder) -> int:
    """Return the bytes of a code: what was asked for, or what the encoder's quantizer makes, or the default."""
    trained = trained_quantizer(encoder, options.code_bytes)
    return options.code_bytes_for(encoder.dim) if trained is None else trained.code_bytes


def _representation(asked: str | Representation | None, encoder: Encoder) -> Representation:
    kinds = vector_kinds(encoder)
    if asked is None:
        return representation_for(kinds, trained_representation(encoder), trained_settings(encoder))
    chosen = representation_from(asked)
    check_readable(chosen, kinds)
    return chosen
