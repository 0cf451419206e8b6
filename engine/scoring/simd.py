"""simsimd, bound to its own symbols."""

from __future__ import annotations

import os
import sys
from functools import cache
from types import ModuleType

from quarry.engine.process.libraries import loading

__all__ = ["simsimd"]


@cache
def simsimd() -> ModuleType:
    """The library of SIMD products.

    USearch offers the symbols of a sibling library to the whole process, and where it was imported first simsimd
    would call those and refuse every array.
    """
    if not hasattr(os, "RTLD_DEEPBIND"):  # nowhere but on Linux
        return _imported()
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        return _imported()
    finally:
        sys.setdlopenflags(flags)


def _imported() -> ModuleType:
    with loading("simsimd"):
        import simsimd

    return simsimd
