"""Query vectors as the searcher needs them, whatever a caller or an encoder hands in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from formats.errors import InvalidQuery

__all__ = ["Vectors", "check_vectors", "query_vectors"]

Vectors = npt.NDArray[np.float32]

_LARGEST = 1e18  # products with the largest centroids there can be stay within float32


def query_vectors(queries: npt.ArrayLike, dim: int) -> Vectors:
    """Convert what a caller gives to (n, dim) float32.

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
        return given.astype(np.float32, copy=False)


def check_vectors(vectors: Vectors) -> None:
    """Check the numbers of (n, dim) query vectors.

    Raises:
        InvalidQuery: a number is not finite, or above 1e18.
    """
    if np.abs(vectors).max(initial=0.0) <= _LARGEST:  # which nan is not
        return
    bad = int((~(np.abs(vectors) <= _LARGEST)).any(axis=1).argmax())
    raise InvalidQuery(f"query vector {bad} holds numbers that are not finite or above {_LARGEST:g}")
