"""Verifies every byte of an index, while others may commit to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError
from quarry.formats.manifest import Manifest, use_newest
from quarry.formats.snapshot import Snapshot, check_files

__all__ = ["VerifyReport", "combine_errors", "verify_index"]


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
    """Read every byte of a generation, or of the newest if its files were deleted.

    Files that two generations share are read once, so this terminates although others commit.

    Args:
        directory: folder of the index.
        manifest: manifest of the generation; None: the newest.

    Raises:
        FormatError: files are damaged or contradict one another; `findings` holds all errors.
    """
    manifest = manifest or use_newest(directory, lambda newest: newest)
    intact: dict[str, int] = {}
    while findings := _find_damage(directory, manifest, intact):
        newest = use_newest(directory, lambda newest: newest)
        if newest.commit_id == manifest.commit_id:
            raise combine_errors(findings, directory)
        manifest = newest  # missing files may have been deleted by a commit
    names = manifest.file_names()
    n_bytes = sum(intact[name] for name in names)
    return VerifyReport(n_files=len(names), n_bytes=n_bytes, n_documents=manifest.n_documents)


def _find_damage(directory: Directory, manifest: Manifest, intact: dict[str, int]) -> list[FormatError]:
    """Return the damage of each file, or if all are intact the contradictions between them."""
    findings = check_files(directory, manifest, intact)
    if not findings:
        try:
            with contextlib.suppress(FileNotFoundError):  # deleted after it was read
                snapshot = Snapshot(directory, manifest=manifest)
                try:
                    _check_numbers(snapshot)
                finally:
                    snapshot.close()
        except FormatError as error:
            findings = [error]
    return findings


def _check_numbers(snapshot: Snapshot) -> None:
    """Read all stored vectors, which must be finite."""
    for segment in snapshot.segments:
        if segment.reader.centroids.kind != "none":
            for _ in segment.reader.centroids.iterate_kept(None):
                pass


def combine_errors(findings: list[FormatError], directory: Directory) -> FormatError:
    """Return one error whose message and `findings` are all that were found in a folder."""
    error = FormatError(f"{len(findings)} errors:\n" + "\n".join(map(str, findings)), path=directory.path)
    error.findings = tuple(findings)
    return error
