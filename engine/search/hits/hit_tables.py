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
        name: pd.Series([row[name] for row in rows], dtype=kind)
        for name, kind in {
            "id": "object",
            "score": "float64",
            "relevance": "float64",
            "title": "object",
            "text": "object",
            "metadata": "object",
            "dense_score": "float64",
            "lexical_score": "float64",
        }.items()
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
    shown = [{**row, "metadata": json.dumps(row["metadata"], ensure_ascii=False)} for row in rows]
    kinds = {
        **dict.fromkeys(("id", "title", "text", "metadata"), pyarrow.string()),
        **dict.fromkeys(("score", "relevance", "dense_score", "lexical_score"), pyarrow.float64()),
    }
    names = ("id", "score", "relevance", "title", "text", "metadata", "dense_score", "lexical_score")
    return pyarrow.Table.from_pylist(shown, schema=pyarrow.schema([(name, kinds[name]) for name in names]))
