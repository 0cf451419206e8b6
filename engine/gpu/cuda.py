"""Which CUDA device this machine has, asked of the driver: importing torch for it would take seconds."""

from __future__ import annotations

import ctypes
import logging
import sys
from functools import cache
from importlib.util import find_spec

__all__ = ["cuda_is_there", "cuda_target"]

_log = logging.getLogger(__name__)
_MAJOR, _MINOR = 75, 76  # the driver's numbers of the two parts of a compute capability


@cache
def cuda_target() -> str | None:
    """The first CUDA device's compute capability, such as "sm90"; None without one."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        device, major, minor = (ctypes.c_int(0) for _ in range(3))
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
            return None
        for attribute, value in ((_MAJOR, major), (_MINOR, minor)):
            if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
                return None
    except (OSError, AttributeError):  # no driver, or something else of that name
        return None
    return f"sm{major.value}{minor.value}"


@cache
def cuda_is_there() -> bool:
    """Whether there is a CUDA device and a torch for it; says so once where only torch is missing."""
    if cuda_target() is None:
        return False
    if find_spec("torch") is None or _torch_is_for_cpus():
        _log.info(
            "there is a CUDA device; to use it: pip install '.[gpu]' in a checkout of Quarry, "
            "with a torch built for CUDA"
        )
        return False
    return True


def _torch_is_for_cpus() -> bool:
    """Whether the name of torch's version says that it was built without CUDA."""
    from importlib.metadata import PackageNotFoundError, version  # some MB that most machines do without

    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
