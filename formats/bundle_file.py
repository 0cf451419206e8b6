"""One file of a bundle: what the manifest says about it, and whether that is so.

SHA-256 is what people compare, and what a check of the whole bundle compares too. Each time before a file is used,
its XXH3-128 is compared: that takes a tenth of the time, and does not load OpenSSL, which holds 4 MB.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import xxhash

from formats.errors import ChecksumMismatch, CorruptFile, TruncatedFile

__all__ = ["FileRecord", "check_size", "record_of", "verify_file"]

_READ_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the manifest says about one file.

    Attributes:
        sha256: 64 lower-case hexadecimal digits.
        n_bytes: its size.
        xxh3: its XXH3-128, 32 lower-case hexadecimal digits; None where the manifest has none.
    """

    sha256: str
    n_bytes: int
    xxh3: str | None = None


def record_of(path: Path) -> FileRecord:
    """Read a file and say what it is."""
    return FileRecord(_sha256(path), path.stat().st_size, _xxh3(path))


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


def verify_file(path: Path, record: FileRecord, *, whole: bool) -> None:
    """Read a file and compare it with its record.

    Args:
        path: the file.
        record: what it should be.
        whole: whether to compare every digest; else XXH3-128 alone, SHA-256 where the record has no other.

    Raises:
        ChecksumMismatch: a digest is another.
        CorruptFile, TruncatedFile: as of `check_size`.
    """
    check_size(path, record)
    if record.xxh3 is not None:
        _compare(path, record.xxh3, _xxh3(path))
    if whole or record.xxh3 is None:
        _compare(path, record.sha256, _sha256(path))


class _Digest(Protocol):
    """An object of hashlib's kind."""

    def update(self, part: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def _compare(path: Path, expected: str, actual: str) -> None:
    if actual != expected:
        raise ChecksumMismatch(
            "the file is not the one the manifest names", path=path, expected=expected, actual=actual
        )


def _xxh3(path: Path) -> str:
    return _digest(path, xxhash.xxh3_128())


def _sha256(path: Path) -> str:
    import hashlib  # OpenSSL's is some times as fast as Python's own, and takes 4 MB

    return _digest(path, hashlib.sha256())


def _digest(path: Path, state: _Digest) -> str:
    """The hexadecimal digits of a file's digest."""
    part = memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while n_bytes := file.readinto(part):
            state.update(part[:n_bytes])
    return state.hexdigest()
