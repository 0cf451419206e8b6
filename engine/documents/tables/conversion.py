"""Values of a library's table as Python's; a row with one that Python cannot represent is refused by itself.

Years before 1 and after 9999 are the usual case. Libraries convert many rows in one call, which fails as a
whole, so those of a call that failed are converted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from quarry.engine.documents.entries import Entry, RefusedEntry
from quarry.engine.documents.place import Place
from quarry.engine.documents.tables.columns import Columns, RowEntry

__all__ = ["NotConverted", "Row", "attempt", "cells_one_by_one", "entry_of"]

T = TypeVar("T")

_CONVERTIBLE = "a value that Python can represent"
_TIME = ", such as a date with a year from 1 to 9999"
_ERRORS = (ValueError, ArithmeticError, LookupError, TypeError, NotImplementedError)  # also those of pyarrow


class NotConverted(NamedTuple):
    """A value that was not converted.

    Attributes:
        reason: what the library says.
        expected: what would have been converted.
        column: the name of its column; "" if a whole call failed.
    """

    reason: str
    expected: str
    column: str = ""


Row: TypeAlias = Mapping[object, object] | NotConverted


def attempt(convert: Callable[[], T]) -> T | NotConverted:
    """Return what a function of a library returns, or that it did not convert its values."""
    try:
        return convert()
    except _ERRORS as error:
        return _not_converted(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of polars, which is not an Exception
            raise
        return _not_converted(error)


def _not_converted(error: BaseException) -> NotConverted:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    is_time = "date" in reason or "year" in reason or "Delta" in reason
    return NotConverted(reason, _CONVERTIBLE + _TIME * is_time)


def cells_one_by_one(names: Sequence[str], n_rows: int, cell: Callable[[int, int], object]) -> list[Row]:
    """Return rows, each as a mapping or as its first value that was not converted.

    Args:
        names: the names of the columns.
        n_rows: number of rows.
        cell: converts the value in the column and the row of these numbers.
    """
    return [_row(names, number, cell) for number in range(n_rows)]


def _row(names: Sequence[str], number: int, cell: Callable[[int, int], object]) -> Row:
    row: dict[object, object] = {}
    for column, name in enumerate(names):
        value = attempt(partial(cell, column, number))
        if isinstance(value, NotConverted):
            return value._replace(column=name)
        row[name] = value
    return row


def entry_of(row: Row, columns: Columns, where: str, path: Path | None = None) -> Entry:
    """Return the entry of a row.

    Args:
        row: the values by column, or the one that was not converted.
        columns: what the columns are.
        where: names the row in errors.
        path: the file it is read from, for errors.
    """
    if isinstance(row, NotConverted):
        place = Place(where, path)
        return RefusedEntry(
            place.error(row.column, "cannot be converted", expected=row.expected, actual=row.reason)
        )
    return RowEntry(row, columns, where, path)
