"""Whether there is a CUDA device for torch, found out without importing torch, which takes seconds."""

from __future__ import annotations

import ctypes
import logging
import sys
from functools import cache
from importlib.util import find_spec

__all__ = ["cuda_is_there"]

_log = logging.getLogger(__name__)


@cache
def cuda_is_there() -> bool:
    """Whether the driver knows a device and torch is installed; says so once where only torch is missing."""
    if not _n_devices():
        return False
    if find_spec("torch") is None:
        _log.info("there is a CUDA device; to search on it: pip install 'quarry-search[gpu]'")
        return False
    return True


def _n_devices() -> int:
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int(0)
        ready = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):  # no driver, or something else of that name
        return 0
    return count.value if ready else 0
