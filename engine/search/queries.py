"""Validates the texts of queries."""

from __future__ import annotations

from collections.abc import Mapping

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.formats.errors import InvalidQuery

__all__ = ["query_texts"]


def query_texts(queries: object) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        InvalidQuery: `queries` is neither a text nor several; the message has the number of a query that is not.
    """
    if isinstance(queries, str):
        return [queries]
    is_other = isinstance(queries, bytes | bytearray | Mapping) or rows_of_table(queries)
    given = None if is_other else iterator_of(queries)
    if given is None:
        raise InvalidQuery("queries are not texts", expected="a str or several", actual=type(queries).__name__)
    texts = []
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is not a text", expected="str", actual=type(text).__name__)
        texts.append(text)
    return texts
