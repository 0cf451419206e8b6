"""Hits as tables of pandas and Arrow, which are imported only here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quarry.engine.process.libraries import loading
from quarry.formats.errors import BackendUnavailable

if TYPE_CHECKING:
    from quarry.engine.search.hits.hits import Hit

__all__ = ["to_arrow", "to_pandas"]


def to_pandas(hits: Sequence[Hit]) -> Any:  # noqa: ANN401  # pandas has no types
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
        name: pd.Series([row[name] for row in _rows(hits)], dtype=kind)
        for name, kind in {
            "id": "object",
            "score": "float64",
            "title": "object",
            "text": "object",
            "metadata": "object",
            "dense_score": "float64",
            "lexical_score": "float64",
        }.items()
    }
    return pd.DataFrame(columns)


def to_arrow(hits: Sequence[Hit]) -> Any:  # noqa: ANN401  # pyarrow has no types
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
    rows = [row | {"metadata": json.dumps(row["metadata"], ensure_ascii=False)} for row in _rows(hits)]
    kinds = {
        **dict.fromkeys(("id", "title", "text", "metadata"), pyarrow.string()),
        **dict.fromkeys(("score", "dense_score", "lexical_score"), pyarrow.float64()),
    }
    names = ("id", "score", "title", "text", "metadata", "dense_score", "lexical_score")
    return pyarrow.Table.from_pylist(rows, schema=pyarrow.schema([(name, kinds[name]) for name in names]))


def _rows(hits: Sequence[Hit]) -> list[dict[str, object]]:
    return [
        {
            "id": hit.id,
            "score": float(hit.score),
            "title": hit.title,
            "text": hit.text,
            "metadata": dict(hit.metadata),
            "dense_score": None if hit.dense_score is None else float(hit.dense_score),
            "lexical_score": None if hit.lexical_score is None else float(hit.lexical_score),
        }
        for hit in hits
    ]
