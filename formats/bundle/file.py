"""One file of a bundle: what the manifest says about it, and whether that is so."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from quarry.formats.bundle.sha256 import file_sha256
from quarry.formats.errors import ChecksumMismatch, CorruptFile, TruncatedFile

__all__ = ["FileRecord", "check_size", "record_of", "verify_file"]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the manifest says about one file.

    Attributes:
        sha256: 64 lower-case hexadecimal digits.
        n_bytes: its size.
    """

    sha256: str
    n_bytes: int


def record_of(path: Path) -> FileRecord:
    """Read a file and say what it is."""
    return FileRecord(file_sha256(path), path.stat().st_size)


def check_size(path: Path, record: FileRecord) -> None:
    """Refuse a file that is not what its record says at first sight.

    Raises:
        CorruptFile: it is missing or is no regular file (links included).
        TruncatedFile: it has another size.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise CorruptFile("a file of the bundle is missing", path=path) from None
    if not stat.S_ISREG(status.st_mode):
        kind = stat.filemode(status.st_mode)
        raise CorruptFile(
            "not a regular file; a bundle holds no links", path=path, expected="-rw-r--r--", actual=kind
        )
    if status.st_size != record.n_bytes:
        raise TruncatedFile(
            "the file has another size than the manifest says",
            path=path,
            expected=f"{record.n_bytes} bytes",
            actual=f"{status.st_size} bytes",
        )


def verify_file(path: Path, record: FileRecord, *, lean: bool = False) -> None:
    """Read a file and compare it with its record.

    Args:
        path: the file.
        record: what it should be.
        lean: whether memory is worth more than time, see `quarry.formats.bundle.sha256`.

    Raises:
        ChecksumMismatch: its SHA-256 is another.
        CorruptFile, TruncatedFile: as of `check_size`.
    """
    check_size(path, record)
    actual = file_sha256(path, lean=lean)
    if actual != record.sha256:
        raise ChecksumMismatch(
            "the file is not the one the manifest names", path=path, expected=record.sha256, actual=actual
        )
