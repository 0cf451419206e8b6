"""The ids of documents, whatever a caller hands in."""

from __future__ import annotations

from collections.abc import Mapping

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.engine.documents.place import kind_of
from quarry.formats.errors import InvalidSetting

__all__ = ["checked_id", "id_list"]


def id_list(ids: object) -> list[str]:
    """The ids as a list: one, or each of several.

    Raises:
        InvalidSetting: what was given is neither, or one of several is not a str; the message says which.
    """
    if isinstance(ids, str):
        return [ids]
    is_other = isinstance(ids, bytes | bytearray | Mapping) or rows_of_table(ids)
    given = None if is_other else iterator_of(ids)
    if given is None:
        raise InvalidSetting(
            "ids cannot be read",
            expected="a str or an iterable of them, no mapping and no table",
            actual=kind_of(ids),
        )
    return [checked_id(doc_id, f"ids[{number}]") for number, doc_id in enumerate(given)]


def checked_id(doc_id: object, name: str) -> str:
    """One id.

    Raises:
        InvalidSetting: it is not a str; the message names it so.
    """
    if not isinstance(doc_id, str):
        raise InvalidSetting(f"{name} is not a str", expected="a str", actual=kind_of(doc_id))
    return doc_id
