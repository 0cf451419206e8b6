"""Checks of what callers of the adapters give: a value of a wrong type is an error that names the argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quarry.engine.arguments import iterator_of, shown
from quarry.formats.errors import InvalidDocument, InvalidQuery, InvalidSetting

__all__ = ["check_embedding", "checked_list", "checked_query", "checked_share", "join_options", "search_options"]


def check_embedding(embedding: Sequence[float] | None, dim: int, place: str) -> None:
    """Refuse a document without an embedding of the length that an index stores.

    Args:
        embedding: the embedding of the document; None: it has none.
        dim: number of its numbers.
        place: what is refused, for the message.

    Raises:
        InvalidDocument: there is none, or one of another length.
    """
    if embedding is None or len(embedding) != dim:
        raise InvalidDocument(
            f"{place}: the index stores an embedding of each document",
            expected=f"{dim} numbers",
            actual="no embedding" if embedding is None else f"{len(embedding)} numbers",
        )


def checked_list(values: object, name: str) -> list[Any]:
    """Return the items of an iterable.

    Raises:
        InvalidSetting: it is something else, or one text, whose characters would count as items.
    """
    items = None if isinstance(values, str | bytes | Mapping) else iterator_of(values)
    if items is None:
        raise InvalidSetting(f"{name} is not a list", expected="a list", actual=shown(values), setting=name)
    return list(items)


def checked_query(text: object) -> str:
    """Return the text of one query.

    Raises:
        InvalidQuery: it is not a text; several queries are several calls.
    """
    if not isinstance(text, str):
        raise InvalidQuery("the query is not a text", expected="a str", actual=shown(text))
    return text


def checked_share(value: object, name: str) -> float:
    """Return a number from 0 to 1.

    Raises:
        InvalidSetting: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidSetting(
            f"{name} is out of range", expected="a number from 0 to 1", actual=shown(value), setting=name
        )
    return float(value)


def join_options(options: object, **own: object) -> dict[str, Any]:
    """Return the keywords of a search: the options that a caller gave, and what an adapter sets itself.

    Args:
        options: keywords by name; None: there are none.
        **own: keywords of the adapter; None: the caller may set it.

    Raises:
        InvalidSetting: the options are not a mapping of names, or the adapter sets one of them itself.
    """
    if options is None:
        options = {}
    if not isinstance(options, Mapping) or not _are_names(options):
        raise InvalidSetting("the options of a search are not keywords", expected="a dict", actual=shown(options))
    given = {name: value for name, value in own.items() if value is not None}
    twice = sorted(options.keys() & given.keys())
    if twice:
        raise InvalidSetting(
            "an option of the search is given twice",
            expected=f"{', '.join(twice)} as an argument of its own",
            actual=", ".join(f"{name}={shown(options[name])}" for name in twice),
            setting=twice[0],
        )
    return {**own, **options}


def search_options(options: object, **own: object) -> dict[str, Any]:
    """Return the keywords of a search as `join_options` does; without a unit it is for passages."""
    return {"unit": "passage", **join_options(options, **own)}


def _are_names(keys: Iterable[object]) -> bool:
    return all(isinstance(key, str) for key in keys)
