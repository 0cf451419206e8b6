"""Reading every byte of an index, while others may commit to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from formats.directory import Directory
from formats.errors import FormatError
from formats.manifest import Manifest, latest_generation
from formats.snapshot import check_files

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


def verify_index(directory: Directory, manifest: Manifest) -> VerifyReport:
    """Read every byte of a generation, or if its files are gone of the newest.

    Raises:
        FormatError: something is wrong; the message lists everything that is, `findings` holds the errors.
    """
    while True:
        findings = check_files(directory, manifest)
        n_bytes = None if findings else _size_bytes(directory, manifest)
        newest = latest_generation(directory)
        if n_bytes is not None or (findings and newest == manifest.generation):
            break
        with contextlib.suppress(FileNotFoundError):  # a commit came between, and perhaps one more
            manifest = Manifest.load(directory, newest)
    if n_bytes is None:
        error = FormatError(f"{len(findings)} damages:\n" + "\n".join(map(str, findings)), path=directory.path)
        error.findings = tuple(findings)
        raise error
    n_documents = sum(segment.n_docs - segment.n_deleted for segment in manifest.segments)
    return VerifyReport(n_files=len(manifest.file_names()), n_bytes=n_bytes, n_documents=n_documents)


def _size_bytes(directory: Directory, manifest: Manifest) -> int | None:
    """Of all files of a generation; None where one of them is gone by now."""
    try:
        return sum((directory.path / name).stat().st_size for name in manifest.file_names())
    except FileNotFoundError:
        return None
