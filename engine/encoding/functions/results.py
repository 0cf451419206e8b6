"""Checks of what an embedding function returns, and its conversion to vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quarry.engine.arguments import is_masked
from quarry.formats.arrays import Float64Array
from quarry.formats.errors import EncodingFailed

__all__ = ["checked_vectors", "listed", "unit_rows"]


def checked_vectors(found: object, n_texts: int, dim: int, call: str) -> Float64Array:
    """Return the vectors of a call as a new (n_texts, dim) float64 array; their numbers may be infinite or nan.

    Args:
        found: what the function returned: an array, or rows of numbers.
        n_texts: number of texts that it was called with.
        dim: length of a vector.
        call: describes the call, for messages.

    Raises:
        EncodingFailed: it is something else, or has another shape.
    """
    if is_masked(found):
        raise EncodingFailed(
            f"{call} returned masked numbers", expected=_expected(n_texts, dim), actual=_kind(found)
        )
    try:
        given = np.asarray(found)
    except Exception as error:  # rows of different lengths, a tensor on a device
        raise EncodingFailed(
            f"{call} returned what cannot be converted to an array",
            expected=_expected(n_texts, dim),
            actual=f"{_kind(found)}: {error}",
        ) from error
    if given.dtype.kind not in "fiu":
        actual = f"{_kind(found)} of {given.dtype}" if given.ndim else _kind(found)
        raise EncodingFailed(f"{call} returned no numbers", expected=_expected(n_texts, dim), actual=actual)
    if given.shape != (n_texts, dim):
        raise EncodingFailed(
            f"{call} returned vectors of the wrong shape",
            expected=_expected(n_texts, dim),
            actual=f"shape {given.shape}",
        )
    return given.astype(np.float64)


def unit_rows(vectors: Float64Array) -> Float64Array:
    """Return (n, dim) vectors scaled to L2 norm 1; zeros stay zeros, and rows that are not finite become nan."""
    with np.errstate(invalid="ignore"):
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
        scaled = vectors / np.where(largest == 0, 1, largest)  # squares of large numbers would overflow
        norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, np.newaxis]
        unit: Float64Array = scaled / np.where(norms == 0, 1, norms)
    return unit


def _expected(n_texts: int, dim: int) -> str:
    return f"an array of shape {(n_texts, dim)}, a vector for each text"


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{name}, of an async function" if name == "coroutine" else name


def listed(found: object) -> object:
    """Return the items of an iterator as a list, and any other value unchanged."""
    return list(found) if isinstance(found, Iterator) else found
