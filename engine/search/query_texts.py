"""The texts of a search, whatever a caller hands in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quarry.formats.errors import InvalidQuery

__all__ = ["query_texts"]


def query_texts(queries: object) -> list[str]:
    """The queries as a list: one text, or each of several.

    Raises:
        InvalidQuery: what was given is neither, or one of several is no text; the message has its number.
    """
    if isinstance(queries, str):
        return [queries]
    if isinstance(queries, bytes | bytearray | Mapping) or not isinstance(queries, Iterable):
        raise InvalidQuery("no text to search for", expected="a str or several", actual=type(queries).__name__)
    texts = list(queries)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is no text", expected="str", actual=type(text).__name__)
    return texts
