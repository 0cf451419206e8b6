"""Verifies every byte of an index, while others may commit to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np

from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, FormatError, IndexNotFound, ShardNotFound
from quarry.formats.manifest import Manifest, use_newest
from quarry.formats.shard_set import has_shard_set, load_newest_shard_set, shard_of
from quarry.formats.snapshot import Snapshot, check_files

__all__ = ["VerifyReport", "verify_index"]


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """The result of `Engine.verify` for an intact index.

    Attributes:
        n_files: number of files of the index.
        n_bytes: their total size.
        n_documents: number of live documents.
    """

    n_files: int
    n_bytes: int
    n_documents: int


def verify_index(directory: Directory, manifest: Manifest | None = None) -> VerifyReport:
    """Read every byte of the index in a folder, and of its shards, if it has any.

    Of an index without shards a generation is read, or the newest if its files were deleted; of others the newest
    generations, and it is also checked that every document is in the shard that its id belongs to.

    Args:
        directory: folder of the index.
        manifest: manifest of the generation of an index without shards; None: the newest.

    Raises:
        IndexNotFound: there is no index.
        FormatError: files are damaged or contradict one another; the message lists all damage, `findings` holds
            the errors.
    """
    return _verify_shards(directory) if has_shard_set(directory) else _verify_partition(directory, manifest)


def _verify_partition(directory: Directory, manifest: Manifest | None = None) -> VerifyReport:
    """Read every byte of a generation; files that two have are read once, so this ends although others commit."""
    manifest = manifest or use_newest(directory, lambda newest: newest)
    intact: dict[str, int] = {}
    while findings := _find_damage(directory, manifest, intact):
        newest = use_newest(directory, lambda newest: newest)
        if newest.commit_id == manifest.commit_id:
            raise _combine_errors(findings, directory)
        manifest = newest  # missing files may have been deleted by a commit
    names = manifest.file_names()
    n_bytes = sum(intact[name] for name in names)
    return VerifyReport(n_files=len(names), n_bytes=n_bytes, n_documents=manifest.n_documents)


def _find_damage(directory: Directory, manifest: Manifest, intact: dict[str, int]) -> list[FormatError]:
    """Return the damage of each file, or if all are intact the contradictions between them."""
    findings = check_files(directory, manifest, intact)
    if not findings:
        try:
            with (
                contextlib.suppress(FileNotFoundError),  # deleted after it was read
                contextlib.closing(Snapshot(directory, manifest=manifest)) as snapshot,
            ):
                _check_numbers(snapshot)
        except FormatError as error:
            findings = [error]
    return findings


def _check_numbers(snapshot: Snapshot) -> None:
    """Read all stored vectors, which must be finite."""
    for segment in snapshot.segments:
        if segment.reader.centroids.kind != "none":
            for _ in segment.reader.centroids.iterate_kept(None):
                pass


def _combine_errors(findings: list[FormatError], directory: Directory) -> FormatError:
    """Return one error whose message and `findings` are all that were found in a folder."""
    error = FormatError(f"{len(findings)} errors:\n" + "\n".join(map(str, findings)), path=directory.path)
    error.findings = tuple(findings)
    return error


def _verify_shards(directory: Directory) -> VerifyReport:
    shard_set = load_newest_shard_set(directory)
    reports: list[VerifyReport] = []
    findings: list[FormatError] = []
    for number, name in enumerate(shard_set.folders):
        try:
            shard = Directory(directory.path / name)
            reports.append(_verify_partition(shard))
            findings += _misplaced(shard, number, len(shard_set.folders))
        except IndexNotFound as error:
            findings.append(ShardNotFound(path=error.path))
        except FormatError as error:
            findings += error.findings or (error,)
    if findings:
        raise _combine_errors(findings, directory)
    return VerifyReport(
        n_files=1 + sum(report.n_files for report in reports),
        n_bytes=directory.size_bytes(shard_set.name) + sum(report.n_bytes for report in reports),
        n_documents=sum(report.n_documents for report in reports),
    )


def _misplaced(shard: Directory, number: int, n_shards: int) -> list[FormatError]:
    """Return an error if a shard has a document that belongs to another one."""
    with contextlib.closing(Snapshot(shard)) as snapshot:
        for segment in snapshot.segments:
            for doc_id in segment.reader.ids.read(np.arange(segment.reader.n_docs)):
                owner = shard_of(doc_id, n_shards)
                if owner != number:
                    problem, actual = "a document is in the wrong shard", f"shard {number}, document {doc_id!r}"
                    return [
                        CorruptFile(problem, path=segment.reader.path, expected=f"shard {owner}", actual=actual)
                    ]
    return []
