"""Documents, and ids of documents, that a caller gives as an iterable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sized

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.entries import Entries, Entry
from quarry.engine.documents.mistaken_sources import is_path, rows_of_table
from quarry.engine.documents.place import kind_of, shown
from quarry.engine.documents.tables.columns import Columns, RowEntry
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["GivenDocuments", "checked_id", "id_list"]


class GivenDocuments(Entries):
    """The items of an iterable, numbered from 1.

    Args:
        items: str, mappings and Documents.
        columns: given, mappings are rows of a table.
    """

    def __init__(self, items: Iterable[object], columns: Columns) -> None:
        self._items = items
        self._columns = columns
        self._n_given = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield them.

        Raises:
            InvalidSetting: they cannot be iterated, or columns are named and one is not a mapping.
        """
        items = iterator_of(self._items)
        if items is None:
            kind = type(self._items).__name__
            raise InvalidSetting("docs cannot be read", expected="an iterable of documents", actual=kind)
        has_columns = self._columns.is_given
        for item in items:
            self._n_given += 1
            if not has_columns:
                yield _Item(item, self._n_given)
            elif isinstance(item, Mapping):
                yield RowEntry(item, self._columns, f"document {self._n_given}")
            else:
                self._columns.refuse(f"document {self._n_given} is not a mapping but {kind_of(item)}")

    def fraction_read(self) -> float | None:
        """How many of the items were taken, if their number is known."""
        if not isinstance(self._items, Sized):
            return None
        return min(1.0, self._n_given / (len(self._items) or 1))


class _Item:
    """One item."""

    __slots__ = ("_number", "_raw")

    def __init__(self, raw: object, number: int) -> None:
        self._raw = raw
        self._number = number

    def document(self) -> Document:
        where = f"document {self._number}"
        if isinstance(self._raw, dict):  # as most are; it saves looking for the method of a path
            return document_from(self._raw, where)
        if isinstance(self._raw, str | os.PathLike) and is_path(self._raw):
            raise InvalidDocument(
                f"{where}: the path of a file or folder in the place of a document",
                expected="the path alone, to index the documents in it, or {'text': ...}, to index its words",
                actual=shown(os.fspath(self._raw)),
            )
        return document_from(self._raw, where)


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
