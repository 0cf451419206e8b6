"""Hits as tables of pandas and Arrow, which are imported only here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from quarry.engine.process.libraries import loading
from quarry.formats.errors import BackendUnavailable

__all__ = ["to_arrow", "to_pandas"]

Row = Mapping[str, Any]
"""The columns of a hit by name."""


def to_pandas(rows: Sequence[Row], kind: Any) -> Any:  # noqa: ANN401  # pandas has no types
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
        name: pd.Series([row[name] for row in rows], dtype={"int64": "Int64"}.get(type_, type_))
        for name, type_ in _columns(kind).items()
    }
    return pd.DataFrame(columns)


def to_arrow(rows: Sequence[Row], kind: Any) -> Any:  # noqa: ANN401  # pyarrow has no types
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
    columns = _columns(kind)
    shown = [
        {name: row[name] for name in columns} | {"metadata": json.dumps(row["metadata"], ensure_ascii=False)}
        for row in rows
    ]
    types = {"float64": pyarrow.float64(), "int64": pyarrow.int64(), "object": pyarrow.string()}
    schema = pyarrow.schema([(name, types[type_]) for name, type_ in columns.items()])
    return pyarrow.Table.from_pylist(shown, schema=schema)


def _columns(kind: Any) -> dict[str, str]:  # noqa: ANN401  # the class `Hit`, which imports this module
    """Return the names of the values that are columns, in their order, and the types of NumPy that they have.

    They are those of a hit that are one text or number, and the metadata.
    """
    hints = get_type_hints(kind.__init__)
    for name, attribute in vars(kind).items():
        if isinstance(attribute, property):
            hints[name] = get_type_hints(attribute.fget)["return"]
    types = {float: "float64", float | None: "float64", int | None: "int64", str: "object"}
    columns = {name: "object" if name == "metadata" else types.get(hints[name]) for name in kind.__new__(kind)}
    return {name: type_ for name, type_ in columns.items() if type_ is not None}
