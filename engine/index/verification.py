"""Reading every byte of an index, while others may commit to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.snapshot import Snapshot, check_files

__all__ = ["VerifyReport", "verify_index"]


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


def verify_index(directory: Directory, manifest: Manifest | None = None) -> VerifyReport:
    """Read every byte of a generation, or if its files are gone of the newest.

    Files that two generations share are read once, so this comes to an end however often others commit.

    Args:
        directory: of the index.
        manifest: of the generation; None: the newest.

    Raises:
        FormatError: something is wrong; the message lists everything that is, `findings` holds the errors.
    """
    manifest = manifest or _newest(directory)
    sound: dict[str, int] = {}
    while findings := _findings(directory, manifest, sound):
        newest = _newest(directory)
        if newest.commit_id == manifest.commit_id:
            raise _all_of(findings, directory)
        manifest = newest  # files that are missing may be gone because of a commit
    names = manifest.file_names()
    n_documents = sum(segment.n_docs - segment.n_deleted for segment in manifest.segments)
    return VerifyReport(n_files=len(names), n_bytes=sum(sound[name] for name in names), n_documents=n_documents)


def _findings(directory: Directory, manifest: Manifest, sound: dict[str, int]) -> list[FormatError]:
    """What is wrong with the files; or where each of them is sound, in what they say of one another."""
    findings = check_files(directory, manifest, sound)
    if not findings:
        try:
            with contextlib.suppress(FileNotFoundError):  # it was read before it went
                Snapshot(directory, manifest=manifest).close()
        except FormatError as error:
            findings = [error]
    return findings


def _newest(directory: Directory) -> Manifest:
    """The newest manifest, however often others commit."""
    while True:
        generation = find_latest_generation(directory)
        try:
            return Manifest.load(directory, generation)
        except FileNotFoundError:
            if find_latest_generation(directory) == generation:
                raise


def _all_of(findings: list[FormatError], directory: Directory) -> FormatError:
    error = FormatError(f"{len(findings)} damages:\n" + "\n".join(map(str, findings)), path=directory.path)
    error.findings = tuple(findings)
    return error
