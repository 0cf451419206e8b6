"""Which columns of a table are id, text, title and vectors of a document; the others become its metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.place import Place, kind_of
from quarry.engine.documents.place import shown as quoted
from quarry.engine.documents.tables.values import MISSING, id_from, plain_value, text_from
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["Columns", "RowEntry", "checked_names", "metadata_of_row"]

N = TypeVar("N", bound=Hashable)

_SHOWN_COLUMNS = 12
_HINT = "text='NAME' with one of its columns, or text=['NAME', 'NAME'] with several"


@dataclass(frozen=True, slots=True)
class Columns:
    """A mapping of columns to fields.

    Attributes:
        id: the column of ids; None: "id" or "_id" if there is one, else ids are random.
        text: the columns of the text, joined by line breaks; none: "text".
        title: the column of titles; None: "title" if there is one.
        vectors: the column of vectors; None: "vectors" if there is one. With it a column "spans" has their spans,
            and there may be no column of texts.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    title: str | None = None
    vectors: str | None = None

    @classmethod
    def of(cls, doc_id: object, text: object, title: object, vectors: object = None) -> Self:
        """Check what a caller gave for ``id=``, ``text=``, ``title=`` and ``vectors=``.

        Raises:
            InvalidSetting: a name is not a str, or a column is named twice.
        """
        several = None if isinstance(text, str | bytes | Mapping) else iterator_of(text)
        texts = [] if text is None else [text] if several is None else list(several)
        given_names = (("id", [doc_id]), ("text", texts), ("title", [title]), ("vectors", [vectors]))
        for name, given in given_names:
            for column in given:
                if not isinstance(column, str | None) or (name == "text" and column is None):
                    kind = kind_of(column)
                    raise InvalidSetting(f"{name} is not the name of a column", expected="a str", actual=kind)
        if several is not None and not texts:
            raise InvalidSetting("text names no column", expected="a str, or several")
        columns = cls(doc_id, tuple(texts), title, vectors)  # type: ignore[arg-type]
        named = [*filter(None, [columns.id, columns.title, columns.vectors]), *texts]
        if len(set(named)) < len(named):
            raise InvalidSetting("a column is named twice", actual=", ".join(map(repr, named)))
        return columns

    @property
    def is_given(self) -> bool:
        """Whether a caller named any column."""
        return self != Columns()

    def refuse(self, problem: str, path: Path | None = None) -> None:
        """Raise InvalidSetting if a caller named columns, which have no effect; the message names them."""
        if self.is_given:
            names = [f"{each.name}=" for each in fields(self) if getattr(self, each.name)]
            raise InvalidSetting(
                f"{', '.join(names)} of a source without columns: {problem}",
                path=path,
                expected="names of columns for tables only",
            )

    def check(self, names: Iterable[Hashable], path: Path | None = None) -> None:
        """Check the columns of a whole table.

        Raises:
            InvalidSetting: a column that is named is missing, or two columns have the same name; the message names
                the columns that are there, and says how to map them.
        """
        there = checked_names(names, path)
        has_vectors = (self.vectors or "vectors") in there
        texts: Sequence[str] = self.text or ([] if has_vectors else ["text"])
        fields: tuple[tuple[str, Sequence[str | None]], ...] = (
            ("id", [self.id]),
            ("vectors", [self.vectors]),
            ("text", texts),
            ("title", [self.title]),
        )
        for setting, wanted in fields:
            for name in wanted:
                if name is not None and name not in there:
                    hint = _HINT if setting == "text" else f"{setting}='NAME' with one of its columns"
                    raise InvalidSetting(
                        f"the table has no column {name!r}", path=path, expected=hint, actual=_names(there)
                    )

    def n_required(self, names: Sequence[str]) -> int:
        """Return how many values a row must at least have: up to its id and the first column of its text.

        Args:
            names: the names of the columns of a table that `check` has passed, in the order of the values.
        """
        texts = [names.index(name) for name in self.text or ("text",) if name in names] or [0]
        ids = [names.index(name) for name in (self.id or "id", "_id") if name in names][:1]
        return max(min(texts), *ids) + 1 if ids else min(texts) + 1

    def fields_of(self, row: Mapping[object, object], place: Place) -> dict[str, object]:
        """Make the fields of a document of a row.

        Raises:
            InvalidDocument: the row has none of the columns of the text, or not that of the id, or a value
            cannot be
                converted; the message names the column and says how to map.
        """
        id_column = self.id or next((name for name in ("id", "_id") if name in row), None)
        title_column = self.title or "title"
        text_columns = [name for name in self.text or ("text",) if name in row]
        vectors_column = self.vectors or "vectors"
        vectors = row.get(vectors_column)
        if not isinstance(vectors, np.ndarray) and plain_value(vectors) is MISSING:
            vectors = None
        if not text_columns and vectors is None:
            names = ", ".join(map(repr, self.text or ("text",)))
            raise InvalidDocument(
                f"{place.where}: no column {names}", path=place.path, expected=_HINT, actual=_names(row)
            )
        texts = [self._text(row, name, place) for name in text_columns]
        fields: dict[str, object] = {"text": "\n".join(filter(None, texts))}
        if title_column in row:
            fields["title"] = self._text(row, title_column, place)
        if id_column is not None:
            fields["id"] = self._id(row, id_column, place)
        used = {id_column, title_column, vectors_column, *text_columns}
        if vectors is not None:
            fields["vectors"] = vectors
            fields["spans"] = row.get("spans")
            used.add("spans")
        fields["metadata"] = metadata_of_row({key: value for key, value in row.items() if key not in used}, place)
        return fields

    def _id(self, row: Mapping[object, object], column: str, place: Place) -> object:
        value = id_from(row.get(column))
        if value is MISSING:
            raise place.error(column, "is missing, and it is the id", expected="a str or an int in every row")
        if not isinstance(value, str):
            raise place.error(
                column,
                "is not a str or an int, and it is the id",
                expected="id='NAME' with a column of ids",
                actual=kind_of(value),
            )
        return value

    def _text(self, row: Mapping[object, object], column: str, place: Place) -> str:
        value = text_from(row[column])
        if not isinstance(value, str):
            raise place.error(column, "is not a text", expected=_HINT, actual=kind_of(value))
        return value


class RowEntry:
    """A row of a table.

    Args:
        row: the values by column.
        columns: what they are.
        where: names the row in errors.
        path: the file it is read from, for errors.
    """

    def __init__(
        self, row: Mapping[object, object], columns: Columns, where: str, path: Path | None = None
    ) -> None:
        self._row = row
        self._columns = columns
        self._place = Place(where, path)

    def document(self) -> Document:
        """Make the document; see `Columns.fields_of`."""
        fields = self._columns.fields_of(self._row, self._place)
        return document_from(fields, self._place.where, self._place.path)


def checked_names(names: Iterable[N], path: Path | None = None) -> list[N]:
    """Return the names of the columns of a table.

    Raises:
        InvalidSetting: two columns have the same name.
    """
    there = list(names)
    twice = next((name for name, number in Counter(there).items() if number > 1), None)
    if twice is not None:
        raise InvalidSetting(f"two columns have the name {twice!r}", path=path, expected="names that differ")
    return there


def metadata_of_row(row: Mapping[object, object] | Mapping[str, object], place: Place) -> dict[str, object]:
    """Return metadata of the columns that are not a field; a mapping in the column "metadata" is added to them.

    Raises:
        InvalidDocument: the mapping has a key that is a column too.
    """
    metadata: dict[str, object] = {}
    for key, value in row.items():
        plain = plain_value(value)
        if plain is MISSING:
            continue
        if key == "metadata" and isinstance(plain, Mapping):
            both = sorted(map(str, plain.keys() & row.keys()))
            if both:
                raise place.error("metadata", f"and the row both have {both[0]!r}", expected="one of them")
            metadata.update(plain)
        else:
            metadata[str(key)] = plain
    return metadata


def _names(names: Iterable[object]) -> str:
    there = [quoted(name) if isinstance(name, str) else repr(name) for name in names]
    more = ", ..." if len(there) > _SHOWN_COLUMNS else ""
    return "the columns " + ", ".join(there[:_SHOWN_COLUMNS]) + more if there else "no columns"
