"""Detects sources passed by mistake: tables and columns in the place of rows, paths in that of texts.

A table of another library iterates over the names of its columns, and a path in a list is a text like any other.
No library is imported for this: a table is known by the names of its class and of the package that it comes from.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping

__all__ = ["is_path", "path_of_file", "rows_of_columns", "rows_of_table"]

_ROWS = {
    ("pandas", "DataFrame"): 'its rows as dicts: table.to_dict("records")',
    ("polars", "DataFrame"): "its rows as dicts: table.to_dicts()",
    ("polars", "LazyFrame"): "its rows as dicts: table.collect().to_dicts()",
    ("pyarrow", "RecordBatch"): "its rows as dicts: table.to_pylist()",
    ("pyarrow", "RecordBatchReader"): "its rows as dicts: table.read_all().to_pylist()",
    ("pyarrow", "Table"): "its rows as dicts: table.to_pylist()",
}
_ANY_ROWS = "its rows, each a dict"
_LONGEST_PATH = 4096  # characters
# Few texts are like that: each of those is looked for on the disk.
_LIKE_A_PATH = re.compile(r"(?=.*\w)(?:\.{0,2}[/\\].*|\S*[./\\]\S*|.*\.\w{1,8})")


def rows_of_table(value: object) -> str | None:
    """Say what to pass in the place of a table of another library; None when the value is not a table."""
    for each in type(value).__mro__:
        known = _ROWS.get((each.__module__.partition(".")[0], each.__name__))
        if known or each.__name__ == "DataFrame":
            return known or _ANY_ROWS
    return _ANY_ROWS if hasattr(type(value), "__dataframe__") else None


def rows_of_columns(value: object) -> str | None:
    """Say what to pass in the place of a mapping of column names to lists; None when the value is none."""
    if not isinstance(value, Mapping) or not value:
        return None
    if not all(isinstance(column, list | tuple) for column in value.values()):
        return None
    return "its rows as dicts: [dict(zip(docs, row)) for row in zip(*docs.values())]"


def path_of_file(value: object, endings: tuple[str, ...]) -> str | None:
    """Say what to pass in the place of an open file with one of the endings; None when the value is none."""
    name = getattr(value, "name", None)
    if isinstance(value, io.IOBase) and isinstance(name, str) and name.lower().endswith(endings):
        return "the path of the file; the lines of an open one are taken as texts"
    return None


def is_path(value: str | os.PathLike[str]) -> bool:
    """Whether an item of an iterable is the path of something that exists, and not meant as a text.

    A single word is a word, even when there is a file of that name.
    """
    if isinstance(value, os.PathLike):
        return True
    if len(value) > _LONGEST_PATH or not _LIKE_A_PATH.fullmatch(value):
        return False
    return os.path.exists(value)  # noqa: PTH110  # no error, whatever the characters
