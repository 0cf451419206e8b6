"""What every encoder checks of a text before it is cut into tokens or passed to a function."""

from __future__ import annotations

from quarry.formats.errors import InvalidDocument, InvalidQuery

__all__ = ["check_document", "check_query", "lone_surrogate"]


def check_document(text: str) -> None:
    """Raise if a document cannot be encoded as UTF-8."""
    position = lone_surrogate(text)
    if position is not None:
        raise InvalidDocument("the text holds a lone surrogate", actual=f"one at character {position}")


def check_query(text: str) -> None:
    """Raise if a query cannot be encoded as UTF-8."""
    position = lone_surrogate(text)
    if position is not None:
        raise InvalidQuery("the query holds a lone surrogate", actual=f"one at character {position}")


def lone_surrogate(text: str) -> int | None:
    """Return the position of the first character that UTF-8 cannot encode, None if there is none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
