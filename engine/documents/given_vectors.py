"""Vectors that come with a document, and the spans of its text that they stand for."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.engine.arguments import is_masked
from quarry.engine.documents.place import Place, kind_of
from quarry.formats.arrays import Float32Array, Float64Array

__all__ = ["MAX_VECTORS", "divide_by_spans", "read_spans", "read_vectors"]

MAX_VECTORS = 1 << 16
"""The largest number of vectors of a document."""

_NUMBERS = "numbers, of shape (dim,) or (n, dim)"


def read_vectors(value: object, place: Place) -> Float32Array:
    """Return the vectors of a document as a new (n, dim) float32 array in row-major order.

    Args:
        value: (dim,) or (n, dim) integers or floating-point numbers: an array of any library that numpy reads, or
            lists of numbers.
        place: the place of the document, for errors.

    Raises:
        InvalidDocument: they are not numbers, not finite in float32, none, or of another shape.
    """
    given = value if type(value) is np.ndarray else _as_array(value, place)
    if given.dtype.kind == "O":
        given = _of_objects(given, place)
    if given.dtype.kind not in "fiu":
        actual = kind_of(value) if given.ndim == 0 else f"an array of {given.dtype}"
        raise place.error("vectors", "is not numbers", expected=_NUMBERS, actual=actual)
    if given.ndim not in (1, 2) or 0 in given.shape or (given.ndim == 2 and len(given) > MAX_VECTORS):
        expected = f"(dim,) or (n, dim), n from 1 to {MAX_VECTORS}"
        raise place.error("vectors", "has the wrong shape", expected=expected, actual=given.shape)
    rows = given.reshape(-1, given.shape[-1])
    vectors = np.array(rows, np.float32, order="C") if rows.dtype == np.float32 else _to_float32(rows)
    if not _are_finite(vectors):
        finite = np.isfinite(vectors).all(axis=1)
        row = int(finite.argmin())
        column = int(np.isfinite(vectors[row]).argmin())
        problem = f"has a number that is not finite in row {row}, column {column}"
        raise place.error("vectors", problem, actual=f"{rows[row, column]}")
    return vectors


def _as_array(value: object, place: Place) -> npt.NDArray[Any]:
    if is_masked(value):
        raise place.error("vectors", "has a masked number", expected=_NUMBERS)
    try:
        return np.asarray(value)
    # rows of different lengths, or a tensor that is not an array
    except (ValueError, TypeError, RuntimeError) as error:
        raise place.error("vectors", "is not an array", expected=_NUMBERS, actual=str(error)[:200]) from error


def _are_finite(vectors: Float32Array) -> bool:
    """Return whether all numbers are finite: so they are if their sum of squares is, which is found sooner."""
    return math.isfinite(np.vdot(vectors, vectors)) or bool(np.isfinite(vectors).all())


def _to_float32(rows: npt.NDArray[Any]) -> Float32Array:
    with np.errstate(over="ignore"):  # infinite numbers are found by the check
        return np.array(rows, np.float32, order="C")


def _of_objects(given: npt.NDArray[np.object_], place: Place) -> Float64Array:
    """Convert an array of objects, such as a column of lists in a table, if all of them are numbers."""
    if is_masked(given):
        raise place.error("vectors", "has a masked number", expected=_NUMBERS)
    try:
        rows = np.array(given.tolist())
    except (ValueError, TypeError) as error:
        raise place.error("vectors", "has rows of different lengths", expected=_NUMBERS) from error
    if rows.dtype.kind not in "fiu":
        raise place.error("vectors", "is not numbers", expected=_NUMBERS, actual=f"an array of {rows.dtype}")
    return rows


def read_spans(value: object, n_vectors: int, n_characters: int, place: Place) -> tuple[tuple[int, int], ...]:
    """Return for each vector the (start, end) characters of the text that it stands for.

    Args:
        value: as many pairs of integers; None: each vector stands for the whole text.
        n_vectors: number of vectors.
        n_characters: length of title, line break and text, or of the text alone if there is no title.
        place: the place of the document, for errors.

    Raises:
        InvalidDocument: they are not pairs of integers within the text, or not as many as vectors.
    """
    if value is None:
        return ((0, n_characters),) * n_vectors
    expected = f"{n_vectors} pairs (start, end) of integers, one for each vector"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str | bytes | Set | Mapping) or not isinstance(value, Iterable):
        raise place.error("spans", "is not a list of pairs", expected=expected, actual=kind_of(value))
    pairs = [tuple(pair) if isinstance(pair, list | tuple | np.ndarray) else () for pair in value]
    if len(pairs) != n_vectors:
        raise place.error("spans", "has the wrong length", expected=expected, actual=len(pairs))
    spans = []
    for number, pair in enumerate(pairs):
        bounds = [each.item() if isinstance(each, np.integer) else each for each in pair]
        if len(bounds) != 2 or any(type(each) is not int for each in bounds):
            raise place.error(f"spans[{number}]", "is not a pair of integers", expected="(start, end)")
        low, high = bounds
        if not 0 <= low <= high <= n_characters:
            raise place.error(
                f"spans[{number}]",
                "is not within the text",
                expected=f"0 <= start <= end <= {n_characters}",
                actual=f"({low}, {high})",
            )
        spans.append((low, high))
    return tuple(spans)


def divide_by_spans(
    spans: Sequence[tuple[int, int]], text: str, n_before: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Divide a document into passages by the spans of its vectors.

    Every span that is not within another one makes a passage, and vectors of the spans within it belong to it; of
    several that a span is within, to the first. A vector of the title belongs to the first passage. Characters
    between two spans belong to the passage before them, those before the first span to the first one, so that no
    word is lost; spans that overlap make passages that overlap.

    Args:
        spans: for each vector the (start, end) characters that it stands for.
        text: title, line break and text of the document, or its text alone if there is no title.
        n_before: how many of these characters are before the text.

    Returns:
        (start, end) characters of each passage, ascending, or (0, 0) of the only one; and for each vector the
        number of its passage.
    """
    widest: list[tuple[int, int]] = []
    for low, high in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        if max(low, n_before) < high and (not widest or high > widest[-1][1]):
            widest.append((low, high))
    if len(widest) < 2:
        return [(0, 0)], [0] * len(spans)
    ends = [end for _, end in widest]
    owners = [min(bisect_left(ends, end), len(ends) - 1) for _, end in spans]
    extents: list[tuple[int, int]] = []
    for (low, high), (following, _) in pairwise([*widest, (len(text), 0)]):
        extents.append((low if extents else 0, high + len(text[high:following].rstrip())))
    return extents, owners
