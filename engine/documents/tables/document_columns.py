"""Documents as columns that a caller gives: checked as columns, each problem named by its column and row."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from quarry.engine.documents.document import MAX_ID_BYTES, MAX_TEXT_CHARACTERS, Document
from quarry.engine.documents.given_vectors import MAX_VECTORS
from quarry.engine.documents.metadata import freeze_metadata
from quarry.engine.documents.place import Place, kind_of, surrogate_in
from quarry.engine.documents.tables.arrow import arrow_columns, exports_arrow, is_arrow_column
from quarry.engine.documents.tables.column_values import read_values, read_vector_column, row_error
from quarry.engine.documents.tables.columns import checked_names, metadata_of_row
from quarry.engine.documents.tables.frames import is_frame, is_series, whole_frame
from quarry.engine.documents.tables.values import MISSING, id_from, text_from
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.errors import InvalidSetting

__all__ = ["DocumentColumns", "table_columns"]

_CHECKED_ROWS = 8192
_MAX_VALUE = 65504  # of float16, one of the types that vectors are stored as
_NO_METADATA = PackedMetadata.of({})


@dataclass(frozen=True, eq=False)
class DocumentColumns:
    """The columns of n documents.

    Attributes:
        ids: n ids.
        vectors: (n, dim) or (n, m, dim) numbers, checked; None: the texts are encoded.
        texts: n texts; None: all are empty.
        titles: n titles; None: all are empty.
        metadata: n metadata, or None.
    """

    ids: list[str]
    vectors: npt.NDArray[Any] | None
    texts: list[str] | None
    titles: list[str] | None
    metadata: list[PackedMetadata] | None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(
        cls,
        dim: int,
        *,
        ids: object = None,
        vectors: object = None,
        texts: object = None,
        titles: object = None,
        metadata: object = None,
        is_cosine: bool = False,
    ) -> Self:
        """Check columns.

        Args:
            dim: length of a vector.
            ids: texts or integers; None: ids are random.
            vectors: see `read_vector_column`; None: there are texts or titles.
            texts: texts, numbers (their digits), or missing values for empty ones; None: all are empty.
            titles: the same.
            metadata: a mapping of names to columns, a table, or a column of mappings; None: no metadata. Mappings
                in a column with the name "metadata" are added to the others.
            is_cosine: whether a vector of zeros is refused.

        Raises:
            InvalidSetting: an argument is not a column, columns have different lengths, or there is neither a
                vector nor a text.
            InvalidDocument: a value is not valid; the message names the column and the row, from 0.
        """
        array = None if vectors is None else read_vector_column(vectors, "vectors")
        lists = {
            name: read_values(column, name)
            for name, column in (("ids", ids), ("texts", texts), ("titles", titles))
            if column is not None
        }
        if array is None and "texts" not in lists and "titles" not in lists:
            raise InvalidSetting("there are neither vectors nor texts", expected="vectors=..., texts=... or both")
        lengths = {name: len(column) for name, column in lists.items()}
        if array is not None:
            lengths["vectors"] = len(array)
        packed = None if metadata is None else _metadata(metadata)
        if packed is not None:
            lengths["metadata"] = len(packed)
        if len(set(lengths.values())) > 1:
            actual = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise InvalidSetting("columns have different lengths", expected="one length", actual=actual)
        n_rows = next(iter(lengths.values()))
        if array is not None:
            _check_vectors(array, dim, is_cosine)
        columns = cls(
            _ids(lists["ids"]) if "ids" in lists else [uuid.uuid4().hex for _ in range(n_rows)],
            array,
            _texts(lists["texts"], "texts") if "texts" in lists else None,
            _texts(lists["titles"], "titles") if "titles" in lists else None,
            packed,
        )
        columns._check_texts()
        return columns

    def documents(self) -> Iterator[Document]:
        """Yield the documents without their vectors."""
        empty = [""] * len(self)
        columns = zip(
            self.ids,
            self.texts or empty,
            self.titles or empty,
            self.metadata or [_NO_METADATA] * len(self),
            strict=True,
        )
        for row, (doc_id, text, title, metadata) in enumerate(columns):
            yield Document(doc_id, text, title, metadata, origin=f"row {row} (id {doc_id!r})")

    def _check_texts(self) -> None:
        """Check the lengths of texts with their titles, and that documents without vectors have one of the two."""
        titles, texts = self.titles or [""] * len(self), self.texts or [""] * len(self)
        for row, (title, text) in enumerate(zip(titles, texts, strict=True)):
            if len(title) + len(text) > MAX_TEXT_CHARACTERS:
                expected = f"at most {MAX_TEXT_CHARACTERS} characters, title included"
                raise row_error("texts", row, "is too long", expected, len(title) + len(text))
            if self.vectors is None and not text.strip() and not title.strip():
                raise row_error("texts", row, "is blank, and there are no vectors", "a text or a vector")


def table_columns(table: object, given: Mapping[str, object]) -> dict[str, object]:
    """Take the arguments of `DocumentColumns.of` out of a table.

    Args:
        table: a DataFrame, a mapping of names to columns, or Arrow data.
        given: by argument the name of its column, or None for "id" or "_id", "vectors", "text" and "title", if
            there are such columns; of metadata the names of its columns, or None for all others.

    Raises:
        InvalidSetting: it is not a table, or lacks a column.
    """
    columns = _columns_of(table)
    default_id = "_id" if "id" not in columns else "id"
    chosen = {
        argument: _find_column(columns, given[argument], argument, default)
        for argument, default in (
            ("ids", default_id),
            ("vectors", "vectors"),
            ("texts", "text"),
            ("titles", "title"),
        )
    }
    if given["metadata"] is None:
        others = [name for name in columns if name not in chosen.values()]
    else:
        names = given["metadata"]
        names = list(names) if isinstance(names, set | frozenset) else read_values(names, "metadata")
        others = [_named(columns, name, "metadata") for name in names]
    arguments = {argument: None if name is None else columns[name] for argument, name in chosen.items()}
    return {**arguments, "metadata": {name: columns[name] for name in others} or None}


def _columns_of(table: object) -> dict[str, Any]:
    if is_frame(table):
        frame = whole_frame(table)
        names = checked_names(map(str, frame.columns))
        return dict(zip(names, (frame[name] for name in frame.columns), strict=True))
    if isinstance(table, Mapping):
        return dict(zip(checked_names(map(str, table)), table.values(), strict=True))
    if exports_arrow(table) and not is_series(table):
        return arrow_columns(table)
    raise InvalidSetting(
        "the table cannot be read",
        expected="a DataFrame, a mapping of names to columns, or Arrow data; or columns by keywords",
        actual=kind_of(table),
    )


def _find_column(columns: Mapping[str, object], given: object, argument: str, default: str) -> str | None:
    if given is None:
        return default if default in columns else None
    return _named(columns, given, argument)


def _named(columns: Mapping[str, object], name: object, argument: str) -> str:
    if not isinstance(name, str) or name not in columns:
        there = ", ".join(map(repr, list(columns)[:12]))
        raise InvalidSetting(
            f"{argument} is not a column of the table",
            expected=f"one of {there}",
            actual=repr(name) if isinstance(name, str) else kind_of(name),
        )
    return name


def _check_vectors(vectors: npt.NDArray[Any], dim: int, is_cosine: bool) -> None:
    if not len(vectors):
        return
    if vectors.shape[-1] != dim or (vectors.ndim == 3 and not 0 < vectors.shape[1] <= MAX_VECTORS):
        expected = f"(n, {dim}) or (n, m, {dim})"
        raise InvalidSetting("the column 'vectors' has the wrong shape", expected=expected, actual=vectors.shape)
    for low in range(0, len(vectors), _CHECKED_ROWS):
        part = vectors[low : low + _CHECKED_ROWS]
        largest = max(part.max(), -part.min()) if part.dtype.kind == "f" else np.abs(part.astype(np.float64)).max()
        if not largest <= (np.finfo(np.float32).max if is_cosine else _MAX_VALUE):
            _raise_unusable(part, low, is_cosine)
        if is_cosine and not (kept := np.asarray(part, np.float32).any(axis=-1)).all():
            row = low + int(np.argmin(kept.reshape(len(part), -1).all(axis=1)))
            raise row_error("vectors", row, "has a vector of zeros", "a direction, for the metric cosine")


def _raise_unusable(part: npt.NDArray[Any], low: int, is_cosine: bool) -> None:
    limit = float(np.finfo(np.float32).max) if is_cosine else _MAX_VALUE
    wide = np.abs(part.astype(np.float64)).reshape(len(part), -1)
    row = int(np.argmin((wide <= limit).all(axis=1)))
    column = int(np.argmin(wide[row] <= limit))
    number = part.reshape(len(part), -1)[row, column]
    problem = f"number {column % part.shape[-1]} of a vector"
    if np.isfinite(number):
        raise row_error("vectors", low + row, f"{problem} is too large", f"at most {limit:g}", float(number))
    raise row_error("vectors", low + row, f"{problem} is not finite", "finite numbers", float(number))


def _ids(values: list[Any]) -> list[str]:
    ids = [value if type(value) is str else id_from(value) for value in values]
    for row, value in enumerate(ids):
        if value is MISSING or value == "":
            raise row_error("ids", row, "is missing", "a str or an int")
        if not isinstance(value, str):
            raise row_error("ids", row, "is not a str or an int", "a str or an int", kind_of(value))
        if not value.isascii() or len(value) > MAX_ID_BYTES:
            n_bytes = _utf8_length(value, "ids", row)
            if n_bytes > MAX_ID_BYTES:
                raise row_error("ids", row, "is too long", f"at most {MAX_ID_BYTES} bytes", n_bytes)
    return [str.__str__(value) for value in ids if isinstance(value, str)]


def _texts(values: list[Any], name: str) -> list[str]:
    texts: list[str] = []
    for row, value in enumerate(values):
        text = value if type(value) is str else text_from(value)
        if not isinstance(text, str):
            raise row_error(name, row, "is not a text", "a str, a number or None", kind_of(value))
        text = str.__str__(text)
        if not text.isascii():
            _utf8_length(text, name, row)
        texts.append(text)
    return texts


def _utf8_length(text: str, name: str, row: int) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        problem, expected, actual = surrogate_in(error)
        raise row_error(name, row, problem, expected, actual) from None


def _metadata(value: object) -> list[PackedMetadata] | None:
    """Return the metadata of each row, of columns by name or of one column of mappings; None without columns."""
    is_arrow_table = exports_arrow(value) and not is_series(value) and not is_arrow_column(value)
    if not isinstance(value, Mapping) and not is_frame(value) and not is_arrow_table:
        return _of_mappings(read_values(value, "metadata"))
    columns = {name: read_values(column, name) for name, column in _columns_of(value).items()}
    if not columns:
        return None
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        actual = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InvalidSetting("columns of metadata have different lengths", expected="one length", actual=actual)
    rows = ({**dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True))
    return _packed(rows, metadata_of_row)


def _of_mappings(rows: Sequence[object]) -> list[PackedMetadata]:
    for row, value in enumerate(rows):
        if value is not None and not isinstance(value, Mapping):
            raise row_error("metadata", row, "is not a mapping", "a mapping or None", kind_of(value))
    return _packed([value for value in rows if value is None or isinstance(value, Mapping)], lambda row, _: row)


def _packed(
    rows: Iterable[Mapping[str, object] | None],
    convert: Callable[[Mapping[str, object], Place], Mapping[str, object]],
) -> list[PackedMetadata]:
    places = (Place(f"column 'metadata', row {number}", None) for number in count())
    return [
        freeze_metadata(convert(row, place), place) if row else _NO_METADATA
        for row, place in zip(rows, places, strict=False)
    ]
