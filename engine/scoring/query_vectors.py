"""Conversion and validation of query vectors."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from quarry.engine.arguments import is_masked
from quarry.formats.arrays import BoolArray, Float32Array
from quarry.formats.errors import InvalidQuery

__all__ = [
    "MAX_MAGNITUDE",
    "Queries",
    "Vectors",
    "VectorsOnDevice",
    "as_array",
    "check_host_vectors",
    "check_numbers",
    "check_vectors",
    "query_vectors",
    "to_host_vectors",
]

Vectors = Float32Array


class VectorsOnDevice(Protocol):
    """(n, dim) float32 query vectors on a device, see `quarry.engine.gpu.device_vectors.DeviceVectors`."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> Self: ...
    @property
    def host(self) -> Vectors: ...  # noqa: D102  # in main memory


Queries = Vectors | VectorsOnDevice
"""(n, dim) float32 query vectors, in main memory or on a device."""

MAX_MAGNITUDE = 1e18
"""Largest magnitude of a component: products with the largest possible centroids do not overflow float32."""


def as_array(vectors: object) -> npt.NDArray[Any]:
    """Return a vector or several that a caller passes as an array, which `query_vectors` checks further.

    Raises:
        InvalidQuery: a number is masked, or rows have different lengths.
    """
    if is_masked(vectors):
        raise InvalidQuery("query vectors have a masked number", expected="numbers")
    try:
        return np.asarray(vectors)
    except ValueError as error:
        raise InvalidQuery("query vectors are not an array", actual=str(error)) from error


def query_vectors(queries: npt.ArrayLike, dim: int) -> Vectors:
    """Convert the vectors that a caller passes to a new (n, dim) float32 array.

    Raises:
        InvalidQuery: they are not numbers, not finite or above 1e18, or of another shape.
    """
    given = as_array(queries)
    if given.dtype.kind not in "fiu":
        raise InvalidQuery("query vectors are not numbers", expected="float32", actual=given.dtype)
    if given.ndim != 2 or given.shape[1] != dim:
        raise InvalidQuery("query vectors have the wrong shape", expected=f"(n, {dim})", actual=given.shape)
    with np.errstate(over="ignore"):  # infinite values are found by the check
        vectors: Vectors = given.astype(np.float32)
    check_vectors(vectors)
    return vectors


def to_host_vectors(queries: Queries) -> Vectors:
    """Return query vectors in main memory; those from a device are validated.

    Raises:
        InvalidQuery: a number of vectors on a device is not finite, or above 1e18.
    """
    if isinstance(queries, np.ndarray):
        return queries
    check_vectors(queries.host)
    return queries.host


def check_host_vectors(queries: Queries) -> None:
    """Raise unless all numbers of query vectors in main memory are valid; a device's are validated when used.

    Raises:
        InvalidQuery: a number is not finite, or above 1e18.
    """
    if isinstance(queries, np.ndarray):
        check_vectors(queries)


def check_vectors(vectors: Vectors) -> None:
    """Raise unless all numbers of (n, dim) query vectors are valid.

    Raises:
        InvalidQuery: a number is not finite, or above 1e18.
    """
    if not np.abs(vectors).max(initial=0.0) <= MAX_MAGNITUDE:  # false for nan
        check_numbers(np.all(np.abs(vectors) <= MAX_MAGNITUDE, axis=1))


def check_numbers(usable: BoolArray, first: int = 0) -> None:
    """Raise unless all queries are valid.

    Args:
        usable: (n,) bool, whether each query is valid.
        first: number of the first query, for the message.

    Raises:
        InvalidQuery: a query is not valid.
    """
    if not usable.all():
        bad = first + int(usable.argmin())
        raise InvalidQuery(f"query vector {bad} holds numbers that are not finite or above {MAX_MAGNITUDE:g}")
