"""Hits as tables of pandas and Arrow, which are imported only here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from quarry.engine.process.libraries import loading
from quarry.formats.errors import BackendUnavailable

__all__ = ["to_arrow", "to_pandas"]

Row = Mapping[str, Any]
"""The columns of a hit by name."""

_COLUMNS = {
    "id": False,
    "score": True,
    "relevance": True,
    "title": False,
    "text": False,
    "metadata": False,
    "dense_score": True,
    "lexical_score": True,
}  # in their order; whether they have numbers


def to_pandas(rows: Sequence[Row]) -> Any:  # noqa: ANN401  # pandas has no types
    """Return one row for each hit, see `quarry.engine.search.hits.hits.Hits.to_pandas`.

    Raises:
        BackendUnavailable: pandas is not installed.
    """
    try:
        with loading("pandas"):
            import pandas as pd
    except ImportError as error:
        raise BackendUnavailable(
            "hits cannot become a DataFrame without the library pandas", expected="pip install pandas"
        ) from error
    columns: dict[str, Any] = {
        name: pd.Series([row[name] for row in rows], dtype="float64" if is_number else "object")
        for name, is_number in _COLUMNS.items()
    }
    return pd.DataFrame(columns)


def to_arrow(rows: Sequence[Row]) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Return one row for each hit, see `quarry.engine.search.hits.hits.Hits.to_arrow`.

    Raises:
        BackendUnavailable: pyarrow is not installed.
    """
    try:
        with loading("pyarrow"):
            import pyarrow
    except ImportError as error:
        raise BackendUnavailable(
            "hits cannot become an Arrow table without the library pyarrow",
            expected="pip install 'quarry-search[tables]'",
        ) from error
    shown = [
        {name: row[name] for name in _COLUMNS} | {"metadata": json.dumps(row["metadata"], ensure_ascii=False)}
        for row in rows
    ]
    kinds = [(name, pyarrow.float64() if is_number else pyarrow.string()) for name, is_number in _COLUMNS.items()]
    return pyarrow.Table.from_pylist(shown, schema=pyarrow.schema(kinds))
