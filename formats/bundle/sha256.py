"""SHA-256, by OpenSSL or by Python's own implementation.

``hashlib`` loads OpenSSL, which stays in memory and is several times as quick where the processor has instructions
for it; Python's own holds nothing (`bench/results/export.jsonl`: lean starts beside usual ones).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

__all__ = ["file_sha256", "short_sha256"]

_PLACES: Final = ("_sha2", "_sha256")  # Python's own: of CPython from 3.12, and of 3.11
_READ_BYTES: Final = 1 << 18
_SHORT_BYTES: Final = 1 << 20  # up to which loading OpenSSL takes longer than it saves


def short_sha256(content: bytes) -> str:
    """The 64 lower-case hexadecimal digits of the SHA-256 of some bytes."""
    state = _own()
    state.update(content)
    return str(state.hexdigest())


def file_sha256(*paths: Path, lean: bool = False) -> str:
    """The 64 lower-case hexadecimal digits of the SHA-256 of a file, or of several, one behind the other.

    Args:
        paths: are read once, a bounded part at a time.
        lean: whether memory is worth more than time: OpenSSL is not loaded for long files either.
    """
    part = memoryview(bytearray(_READ_BYTES))
    short = lean or sum(path.stat().st_size for path in paths) <= _SHORT_BYTES
    state = _own() if short and "_hashlib" not in sys.modules else _openssl()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while n_bytes := file.readinto(part):
                state.update(part[:n_bytes])
    return str(state.hexdigest())


def _own() -> Any:  # noqa: ANN401  # an object of hashlib's kind
    for name in _PLACES:
        try:
            return import_module(name).sha256()
        except ImportError:
            continue
    return _openssl()


def _openssl() -> Any:  # noqa: ANN401  # an object of hashlib's kind
    import hashlib

    return hashlib.sha256()
