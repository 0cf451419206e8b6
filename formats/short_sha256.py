"""SHA-256 of a few bytes.

``hashlib`` loads OpenSSL, which holds 4 MB of a process, for what takes Python's own implementation microseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

__all__ = ["short_sha256"]

_PLACES = ("_sha2", "_sha256")  # of CPython from 3.12, and of 3.11


def short_sha256(content: bytes) -> str:
    """The 64 lower-case hexadecimal digits of the SHA-256 of some bytes."""
    for name in _PLACES:
        try:
            return cast("str", import_module(name).sha256(content).hexdigest())
        except ImportError:
            continue
    import hashlib

    return hashlib.sha256(content).hexdigest()
