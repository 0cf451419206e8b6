"""Checks the texts that a caller searches for."""

from __future__ import annotations

from collections.abc import Mapping

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.formats.errors import InvalidQuery

__all__ = ["query_texts"]


def query_texts(queries: object) -> list[str]:
    """The queries as a list: one text, or each of several.

    Raises:
        InvalidQuery: what was given is neither, or one of several is no text; the message has its number.
    """
    if isinstance(queries, str):
        return [queries]
    is_other = isinstance(queries, bytes | bytearray | Mapping) or rows_of_table(queries)
    given = None if is_other else iterator_of(queries)
    if given is None:
        raise InvalidQuery("no text to search for", expected="a str or several", actual=type(queries).__name__)
    texts = []
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is no text", expected="str", actual=type(text).__name__)
        texts.append(text)
    return texts
