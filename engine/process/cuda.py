"""Detects CUDA devices through the driver, because importing torch would take seconds."""

from __future__ import annotations

import ctypes
import logging
import sys
from functools import cache
from importlib.util import find_spec

__all__ = ["get_cuda_target", "has_cuda"]

_log = logging.getLogger(__name__)
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@cache
def get_cuda_target() -> str | None:
    """Return the compute capability of the first CUDA device, such as "sm90"; None without a device."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        device, major, minor = (ctypes.c_int(0) for _ in range(3))
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
            return None
        for attribute, value in ((_MAJOR, major), (_MINOR, minor)):
            if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
                return None
    except (OSError, AttributeError):  # no driver, or another library of that name
        return None
    return f"sm{major.value}{minor.value}"


@cache
def has_cuda() -> bool:
    """Return whether there is a CUDA device and a torch built for it; log once if only torch is missing."""
    if get_cuda_target() is None:
        return False
    if find_spec("torch") is None or _is_cpu_build_of_torch():
        _log.info(
            "there is a CUDA device; to use it: pip install '.[gpu]' in a checkout of Quarry, "
            "with a torch built for CUDA"
        )
        return False
    return True


def _is_cpu_build_of_torch() -> bool:
    """Return whether the version of torch says that it was built without CUDA."""
    from importlib.metadata import PackageNotFoundError, version  # takes some MB that most machines do not need

    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
