"""Memory that was freed, given back to the operating system.

The C library of most Linux systems (glibc) keeps freed memory for each thread, tens of megabytes of it once arrays
of some megabytes were freed: another thread that then allocates does not get it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

__all__ = ["return_freed_memory"]


def return_freed_memory() -> None:
    """Give memory that is allocated but not used back to the operating system; does nothing without glibc."""
    trim = _find_trim()
    if trim is not None:
        trim(0)


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # other C libraries; Windows has no library of that name
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    function: Callable[[int], int] = trim
    return function
