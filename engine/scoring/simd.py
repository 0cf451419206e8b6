"""Imports simsimd so that it calls its own functions."""

from __future__ import annotations

import os
import sys
from functools import cache
from types import ModuleType

from quarry.engine.process.libraries import loading

__all__ = ["simsimd"]


@cache
def simsimd() -> ModuleType:
    """Return the library of SIMD products.

    USearch exports the symbols of a related library to the whole process. If it was imported first, simsimd would
    call those and raise for every array.
    """
    if not hasattr(os, "RTLD_DEEPBIND"):  # not on Linux
        return _import_simsimd()
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        return _import_simsimd()
    finally:
        sys.setdlopenflags(flags)


def _import_simsimd() -> ModuleType:
    with loading("simsimd"):
        import simsimd

    return simsimd
