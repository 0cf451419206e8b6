"""Query vectors as the searcher needs them, whatever a caller or an encoder hands in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.formats.errors import InvalidQuery

__all__ = ["LARGEST", "Queries", "Vectors", "check_numbers", "check_vectors", "host_vectors", "query_vectors"]

Vectors = npt.NDArray[np.float32]
Queries = Vectors | DeviceVectors
"""(n, dim) float32 query vectors, wherever they are."""

LARGEST = 1e18
"""Of a query's numbers: products with the largest centroids there can be stay within float32."""


def query_vectors(queries: npt.ArrayLike, dim: int) -> Vectors:
    """Convert what a caller gives to (n, dim) float32, an array of its own.

    Raises:
        InvalidQuery: no numbers, or not of that shape.
    """
    try:
        given = np.asarray(queries)
    except ValueError as error:  # rows of different lengths
        raise InvalidQuery("query vectors are no array", actual=str(error)) from error
    if given.dtype.kind not in "fiu":
        raise InvalidQuery("query vectors are no numbers", expected="float32", actual=given.dtype)
    if given.ndim != 2 or given.shape[1] != dim:
        raise InvalidQuery("query vectors of the wrong shape", expected=f"(n, {dim})", actual=given.shape)
    with np.errstate(over="ignore"):  # what becomes infinite is found by `check_vectors`
        return given.astype(np.float32)


def host_vectors(queries: Queries) -> Vectors:
    """The same in main memory.

    Raises:
        InvalidQuery: a number of vectors that were on a device is not finite, or above 1e18.
    """
    if not isinstance(queries, DeviceVectors):
        return queries
    check_vectors(queries.host)
    return queries.host


def check_vectors(vectors: Vectors) -> None:
    """Check the numbers of (n, dim) query vectors.

    Raises:
        InvalidQuery: a number is not finite, or above 1e18.
    """
    if not np.abs(vectors).max(initial=0.0) <= LARGEST:  # which nan is not
        check_numbers(np.all(np.abs(vectors) <= LARGEST, axis=1))


def check_numbers(usable: npt.NDArray[np.bool_], first: int = 0) -> None:
    """Refuse queries of which some have numbers that cannot be used.

    Args:
        usable: (n,) bool, which have not.
        first: number of the first of them.

    Raises:
        InvalidQuery: not all are usable.
    """
    if not usable.all():
        bad = first + int(usable.argmin())
        raise InvalidQuery(f"query vector {bad} holds numbers that are not finite or above {LARGEST:g}")
