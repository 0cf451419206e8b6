"""The values of one column, whatever library it is of: numpy, pandas, polars, pyarrow, or lists.

Arrow data are read by pyarrow if they come from a library that gives neither lists nor arrays; see
`quarry.engine.documents.tables.arrow`.
"""

from __future__ import annotations

from collections.abc import Mapping, MappingView
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.engine.arguments import is_masked, iterator_of
from quarry.engine.documents.place import kind_of
from quarry.engine.documents.tables.arrow import arrow_vectors, exports_arrow, open_arrow_column
from quarry.engine.documents.tables.conversion import NotConverted, attempt
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["read_values", "read_vector_column", "row_error"]

_COLUMN = "a column: an array, a list, a Series, or Arrow data"
_VECTORS = "numbers of shape (n, dim) or (n, m, dim)"
_LISTS = ("to_pylist", "to_list", "tolist")  # methods of columns of pyarrow, of polars and pandas, and of numpy


def read_values(column: object, name: str) -> list[Any]:
    """Return the values of a column as a list.

    Args:
        column: the column of any kind.
        name: the name of the argument, for errors.

    Raises:
        InvalidDocument: a value cannot be converted; the message names the row.
        InvalidSetting: it is not a column.
    """
    _check_order(column, name)
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM" and column.ndim:
        return list(column)  # `tolist` makes integers of those that Python's types cannot represent
    for method in _LISTS:
        convert = getattr(column, method, None)
        if callable(convert) and not isinstance(column, type):
            values = attempt(convert)
            if isinstance(values, NotConverted):
                raise _not_converted(column, name, values)
            if isinstance(values, list):
                return values
    if exports_arrow(column):
        return read_values(open_arrow_column(column, name), name)
    iterator = None if isinstance(column, str | bytes | Mapping) else iterator_of(column)
    if iterator is None:
        raise InvalidSetting(f"{name} is not a column", expected=_COLUMN, actual=kind_of(column))
    return list(iterator)


def _not_converted(column: Any, name: str, failure: NotConverted) -> InvalidDocument:  # noqa: ANN401
    """Return the error that names the first row whose value is not converted, if there is one."""
    for number in range(len(column) if hasattr(column, "__len__") else 0):
        each = attempt(partial(_value_at, column, number))
        if isinstance(each, NotConverted):
            return row_error(name, number, "cannot be converted", each.expected, each.reason)
    return InvalidDocument(
        f"column {name!r}: cannot be converted", expected=failure.expected, actual=failure.reason
    )


def _value_at(column: Any, number: int) -> object:  # noqa: ANN401
    value = getattr(column, "iloc", column)[number]  # numbers are labels of a Series of pandas
    return value.as_py() if hasattr(value, "as_py") else value  # of pyarrow


def read_vector_column(column: object, name: str) -> npt.NDArray[Any]:
    """Return a column of vectors as an array of numbers: (n, dim), or (n, m, dim) for m vectors in each row.

    Numbers are not copied if the column has them in one piece. What `dim` is of a column without rows may be lost.

    Raises:
        InvalidDocument: a row has no vector, or one of another length; the message names the row.
        InvalidSetting: the column has no vectors.
    """
    _check_order(column, name)
    if exports_arrow(column) and not hasattr(column, "__array__"):
        array = arrow_vectors(open_arrow_column(column, name), name)
    elif type(column).__module__.partition(".")[0] == "pyarrow":
        array = arrow_vectors(column, name)
    else:
        array = _of_rows(column, name)
    if array.shape == (0,):
        return np.empty((0, 1), np.float32)
    if array.dtype.kind not in "fiu" or array.ndim not in (2, 3):
        actual = f"{array.dtype} of shape {array.shape}"
        raise InvalidSetting(f"{name} is not a column of vectors", expected=_VECTORS, actual=actual)
    return array


def _check_order(column: object, name: str) -> None:
    """Raise if a column is a set: its values would meet those of other columns in any order."""
    if isinstance(column, AbstractSet) and not isinstance(column, MappingView):  # views have the mapping's order
        raise InvalidSetting(f"{name} has no order", expected=_COLUMN, actual=kind_of(column))


def _of_rows(column: object, name: str) -> npt.NDArray[Any]:
    """Convert an array, or rows that are arrays or lists."""
    if isinstance(column, str | bytes | Mapping):
        raise InvalidSetting(f"{name} is not a column", expected=_COLUMN, actual=kind_of(column))
    if is_masked(column):
        row = next(number for number, row in enumerate(column) if is_masked(row))  # type: ignore[arg-type, var-annotated]
        raise row_error(name, row, "has a masked number", "numbers", "a mask")
    try:
        array: npt.NDArray[Any] = np.asarray(column)
        if array.dtype == object and array.ndim == 1 and is_masked(array):
            row = next(number for number, each in enumerate(array) if is_masked(each))
            raise row_error(name, row, "has a masked number", "numbers", "a mask")
        if array.dtype == object:
            array = np.array([np.asarray(row) for row in array.tolist()])
    except (ValueError, TypeError, RuntimeError):  # a tensor that is not an array, for example
        array = np.empty((), object)
    if array.dtype.kind not in "fiu" and not (isinstance(column, np.ndarray) and column.dtype != object):
        return _stack_rows(read_values(column, name), name)
    return array


def _stack_rows(rows: list[object], name: str) -> npt.NDArray[Any]:
    """Return the vectors of rows; an error names the first row that is not a vector like the others."""
    expected: tuple[int, ...] | None = None
    vectors: list[npt.NDArray[Any]] = []
    for number, row in enumerate(rows):
        try:
            vector = np.asarray(row)
        except (ValueError, TypeError) as error:
            raise row_error(name, number, "is not a vector", "numbers", kind_of(row)) from error
        if vector.dtype.kind not in "fiu" or vector.ndim not in (1, 2):
            raise row_error(name, number, "is not a vector", "numbers", kind_of(row))
        expected = expected or vector.shape
        if vector.shape != expected:
            raise row_error(name, number, "has another shape than the rows before", expected, vector.shape)
        vectors.append(vector)
    return np.array(vectors)


def row_error(
    name: str, number: int, problem: str, expected: object = None, actual: object = None
) -> InvalidDocument:
    """Return the error of a value of a column, in the row of a number from 0."""
    return InvalidDocument(f"column {name!r}, row {number}: {problem}", expected=expected, actual=actual)
