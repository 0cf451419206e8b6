"""Rows of the tables of pandas and polars.

Neither library is imported: a table is known by the names of its class and of the package that it comes from, and
gives its rows itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from quarry.engine.documents.entries import Entries, Entry
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.documents.tables.conversion import NotConverted, Row, attempt, cells_one_by_one, entry_of

__all__ = ["FrameRows", "is_frame", "is_series", "whole_frame"]

_BATCH_ROWS = 1024
_FRAMES = frozenset({("pandas", "DataFrame"), ("polars", "DataFrame"), ("polars", "LazyFrame")})


def is_frame(value: object) -> bool:
    """Whether a value is a table of pandas or polars."""
    return not _names(value).isdisjoint(_FRAMES)


def is_series(value: object) -> bool:
    """Whether a value is one column of a table: an iterable of values like any other."""
    return any(name == "Series" for _, name in _names(value))


def whole_frame(table: Any) -> Any:  # noqa: ANN401
    """Return a table of pandas or polars, collected if it is lazy, with a named index of pandas as columns."""
    if ("polars", "LazyFrame") in _names(table):
        table = table.collect()
    if ("pandas", "DataFrame") in _names(table) and any(name is not None for name in table.index.names):
        table = table.reset_index(allow_duplicates=True)  # names that are there twice are refused later
    return table


class FrameRows(Entries):
    """The rows of a table, numbered from 1.

    Args:
        table: the table of pandas or polars; a lazy one is collected. A named index of pandas is a column like the
            others.
        columns: what its columns are.

    Raises:
        InvalidSetting: a column that is named is missing, or two have the same name.
    """

    def __init__(self, table: Any, columns: Columns) -> None:  # noqa: ANN401
        self._table = table = whole_frame(table)
        self._is_pandas = ("pandas", "DataFrame") in _names(table)
        self._columns = columns
        self._n_read = 0
        columns.check(map(_name, table.columns))

    def __iter__(self) -> Iterator[Entry]:
        """Yield the rows."""
        for row in self._rows():
            self._n_read += 1
            yield entry_of(row, self._columns, f"document {self._n_read}")

    def fraction_read(self) -> float | None:
        """How many of the rows have been read."""
        return min(1.0, self._n_read / (len(self._table) or 1))

    def _rows(self) -> Iterator[Row]:
        if not self._is_pandas:
            for start in range(0, len(self._table), _BATCH_ROWS):
                yield from _rows_of_polars(self._table.slice(start, _BATCH_ROWS))
            return
        names: list[object] = list(map(_name, self._table.columns))
        for start in range(0, len(self._table), _BATCH_ROWS):
            part = self._table.iloc[start : start + _BATCH_ROWS]
            columns = [attempt(part.iloc[:, number].tolist) for number in range(len(names))]
            if any(isinstance(column, NotConverted) for column in columns):
                yield from cells_one_by_one(list(map(str, names)), len(part), partial(_cell_of_pandas, part))
            else:
                yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _rows_of_polars(part: Any) -> list[Row]:  # noqa: ANN401
    rows: list[Row] | NotConverted = attempt(partial(part.rows, named=True))
    if isinstance(rows, NotConverted):
        rows = cells_one_by_one(part.columns, len(part), lambda column, row: part.to_series(column)[row])
    return rows


def _cell_of_pandas(part: Any, column: int, row: int) -> object:  # noqa: ANN401
    return part.iloc[row : row + 1, column].tolist()[0]


def _names(value: object) -> set[tuple[str, str]]:
    return {(each.__module__.partition(".")[0], each.__name__) for each in type(value).__mro__}


def _name(column: object) -> str:
    """The name of a column; pandas has others than texts."""
    return column if isinstance(column, str) else str(column)
