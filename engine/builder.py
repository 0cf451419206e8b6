"""`build`: documents in, an index out."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from quarry.engine.analysis.analyzer import RULES, Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.documents.reader import DocumentSource, DocumentStream, read_documents
from quarry.engine.encoding.encoder import Encoder, open_encoder, trained_representation, vector_kinds
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.options import BuildKeywords, BuildOptions, OpenOptions
from quarry.engine.progress import Progress, ProgressSetting
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import check_readable, representation_for, representation_from
from quarry.formats.container.directory import Directory, sync_folder
from quarry.formats.errors import IndexExists, IndexNotFound
from quarry.formats.manifest import IndexSettings, Manifest, latest_generation
from quarry.formats.write_lock import LOCK_NAME

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
    interrupted build leaves it, or nothing.

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
        IndexLocked: somebody is writing to it.
        InvalidDocument: a document is not valid.
        InvalidSetting: a setting is not valid.
    """
    started = time.perf_counter()
    index_settings, opened = _settings(encoder, representation, settings)
    resources = OpenOptions(threads=threads)
    stream = read_documents(docs, skip_invalid=skip_invalid)
    folder = Path(path).absolute()
    _check_free(folder, overwrite)
    with _prepared(folder), _writer(folder, index_settings, opened, resources) as writer:
        _check_free(folder, overwrite)  # again: another build may have been quicker
        writer.add(_shown(stream, progress), stream.skip)
        generation, n_replaced = writer.commit()
        manifest = Manifest.load(Directory(folder), generation)
        return BuildReport(
            n_documents=sum(segment.n_docs - segment.n_deleted for segment in manifest.segments),
            n_replaced=n_replaced,
            n_skipped=stream.n_skipped,
            skipped=tuple(stream.first_errors),
            n_centroids=writer.n_rows,
            n_tokens=writer.n_tokens,
            size_bytes=sum((folder / name).stat().st_size for name in manifest.file_names()),
            duration_s=time.perf_counter() - started,
        )


def _writer(
    folder: Path, settings: IndexSettings, encoder: Encoder, resources: OpenOptions
) -> contextlib.closing[IndexWriter]:
    return contextlib.closing(IndexWriter(Directory(folder), encoder, resources.n_threads, fresh=settings))


def _shown(stream: DocumentStream, setting: ProgressSetting) -> Iterator[Document]:
    """The documents of a stream, their progress shown."""
    with Progress(setting, "building") as progress:
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
            code_bytes=options.code_bytes_for(opened.dim),
            language=analyzer.language,
            analysis_rules=RULES,
            k1=float(options.k1),
            b=float(options.b),
            seed=options.seed,
        ),
        opened,
    )


def _representation(asked: str | Representation | None, encoder: Encoder) -> Representation:
    kinds = vector_kinds(encoder)
    if asked is None:
        return representation_for(kinds, trained_representation(encoder))
    chosen = representation_from(asked)
    check_readable(chosen, kinds)
    return chosen


def _check_free(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise IndexExists("a file is in the way", path=folder, expected="a folder, or nothing")
    if not folder.exists() or overwrite:
        return
    generation = _generation(folder)
    if generation:
        raise IndexExists(
            "there is an index already; overwrite=True (--overwrite) replaces it",
            path=folder,
            actual=f"generation {generation}",
        )


def _generation(folder: Path) -> int:
    """The generation of the index there, 0 where there is none."""
    try:
        return latest_generation(Directory(folder))
    except IndexNotFound:
        return 0


@contextlib.contextmanager
def _prepared(folder: Path) -> Iterator[None]:
    """Make the folder; when the build fails say what is left, and take away a folder that was made for it."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    made = bool(missing)
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.resolve().parent)
    before = _generation(folder)
    try:
        yield
    except BaseException as error:
        error.add_note(_left_behind(folder, made, before))
        raise


def _left_behind(folder: Path, made: bool, before: int) -> str:
    now = _generation(folder)
    if now > before:
        return f"{folder} was changed all the same: it is at generation {now}."
    if now:
        return f"The build was not completed; {folder} is as it was, at generation {now}."
    if made:
        with contextlib.suppress(OSError):
            (folder / LOCK_NAME).unlink(missing_ok=True)
            folder.rmdir()
    return f"The build was not completed; there is no index at {folder}."
