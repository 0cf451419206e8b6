"""Names of array types: one name, one dtype."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "AnyArray",
    "BoolArray",
    "Float16Array",
    "Float32Array",
    "Float64Array",
    "Int8Array",
    "Int32Array",
    "Int64Array",
    "UInt8Array",
    "UInt32Array",
    "UInt64Array",
    "offsets_from_sizes",
]

AnyArray: TypeAlias = npt.NDArray[Any]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Float16Array: TypeAlias = npt.NDArray[np.float16]
Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Int8Array: TypeAlias = npt.NDArray[np.int8]
Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt8Array: TypeAlias = npt.NDArray[np.uint8]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]


def offsets_from_sizes(sizes: npt.ArrayLike) -> Int64Array:
    """Return the offsets of consecutive parts of the given sizes, and the end of the last one.

    Args:
        sizes: (n,) integers or booleans.

    Returns:
        (n + 1,) int64: part i has the elements offsets[i] to offsets[i + 1] - 1.
    """
    sizes = np.asarray(sizes)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
