"""A document as it comes in: its id, text, title and metadata, and the rules for each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from quarry.engine.documents.given_vectors import read_spans, read_vectors
from quarry.engine.documents.metadata import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, freeze_metadata
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.engine.documents.place import Place, kind_of, shown, surrogate_in
from quarry.engine.json_mapping import JsonMapping
from quarry.formats.arrays import Float32Array
from quarry.formats.errors import InvalidDocument
from quarry.formats.manifest import IndexSettings
from quarry.formats.metadata.values import Kind, iterate_values

__all__ = [
    "DOCUMENT_FIELDS",
    "FILE_FIELDS",
    "MAX_ID_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_METADATA_DEPTH",
    "MAX_TEXT_CHARACTERS",
    "Document",
    "document_from",
    "full_text",
    "has_given_id",
    "passage_text",
    "repeated_title",
    "searchable_texts",
]

MAX_ID_BYTES = 4 << 10
"""The longest id, in bytes of UTF-8."""
MAX_TEXT_CHARACTERS = 4 << 20
"""The longest title and text together, in characters (code points)."""
_MAX_REPEATED_TITLE = 512  # characters; a longer one would be a large part of every passage

_EXPECTED_ID = "a str; integers become their digits when the field is named: id='id', on the command line --id id"
FILE_FIELDS = ("attachments", "cc", "file.path", "from", "to")
"""What is searchable by default in documents of a folder: the paths of files; senders and recipients of mail."""
DOCUMENT_FIELDS = frozenset({"id", "_id", "text", "title", "metadata", "vectors", "spans"})
"""The names that `document_from` reads."""


class Document(JsonMapping):
    """A document to be indexed. ``document_from`` makes one and holds it to the rules.

    A document cannot be changed. It is also a mapping of the fields that `document_from` reads as JSON-compatible
    values: ``dict(document)`` is ``document.to_dict()``, and a web framework can return documents as they are.

    Attributes:
        id: non-empty, unique in an index, at most 4 KiB of UTF-8; comes back exactly as it was given.
        text: what is searched, together with the title: one of the two is not blank, unless there are vectors, and
            both together have at most 4 Mi characters.
        title: may be empty.
        metadata: str keys; values str, signed 64-bit int, finite float, bool, None, and lists and dicts
            of them (numbers and bools of NumPy become Python's, dates and times their ISO 8601 texts); at most
            64 KiB serialized. Kept and given back; filters read it, with id and title (see
            docs/documents.md). Of a document that ``document_from`` made it cannot be changed.
        origin: where it was read, for messages: "document 17 (id 'moon')", "docs.jsonl: line 12"; may be empty.
        vectors: (n, dim) float32, the vectors of the document, which is then not encoded; None: it is encoded, or
            it was read from an index without its vectors.
        spans: for each vector the (start, end) characters of `full_text` that it stands for.
        stored_as: of a document of `Engine.get`, how the index stores the vectors: "float16" or "int8", when
            `vectors` are exactly the stored ones, or "codes", when they are decoded approximations. "words": they
            are zeros, as the document is found by words alone, see `Engine.sync`; else "".
    """

    __slots__ = ("id", "metadata", "origin", "spans", "stored_as", "text", "title", "vectors")
    __hash__ = None  # type: ignore[assignment]  # metadata may be a dict

    id: str
    text: str
    title: str
    metadata: Mapping[str, object]
    origin: str
    vectors: Float32Array | None
    spans: tuple[tuple[int, int], ...]
    stored_as: str

    def __init__(  # what a document has
        self,
        id: str,  # noqa: A002  # the name of the attribute
        text: str,
        title: str = "",
        metadata: Mapping[str, object] | None = None,
        origin: str = "",
        vectors: Float32Array | None = None,
        spans: tuple[tuple[int, int], ...] = (),
        stored_as: str = "",
    ) -> None:
        set_attribute = object.__setattr__
        set_attribute(self, "id", id)
        set_attribute(self, "text", text)
        set_attribute(self, "title", title)
        set_attribute(self, "metadata", {} if metadata is None else metadata)
        set_attribute(self, "origin", origin)
        set_attribute(self, "vectors", vectors)
        set_attribute(self, "spans", spans)
        set_attribute(self, "stored_as", stored_as)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Document cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Document cannot be changed: {name}")

    def __reduce__(self) -> tuple[type[Document], tuple[object, ...]]:
        values = (self.id, self.text, self.title, self.metadata, self.origin, self.vectors, self.spans)
        return Document, (*values, self.stored_as)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document):
            return NotImplemented
        return (self.id, self.text, self.title, self.metadata) == (
            other.id,
            other.text,
            other.title,
            other.metadata,
        )

    def __repr__(self) -> str:
        fields = f"id={self.id!r}, text={self.text!r}, title={self.title!r}, metadata={self.metadata!r}"
        return f"Document({fields})"

    def _values(self) -> Mapping[str, Callable[[], object]]:
        fields: dict[str, Callable[[], object]] = {
            "id": lambda: self.id,
            "text": lambda: self.text,
            "title": lambda: self.title,
            "metadata": lambda: dict(self.metadata),
        }
        if (vectors := self.vectors) is not None:
            fields["vectors"] = vectors.tolist
            if self.spans:
                fields["spans"] = lambda: [list(span) for span in self.spans]
        return fields

    @property
    def full_text(self) -> str:
        """What the encoder reads: title, line break, text; only the text if the title is empty."""
        return full_text(self.title, self.text)


def full_text(title: str, text: str) -> str:
    """Title, line break, text; only the text if the title is empty."""
    return f"{title}\n{text}" if title else text


def repeated_title(title: str) -> str:
    """Return the title that stands in front of every passage of a document; "" for one of over 512 characters."""
    return title if len(title) <= _MAX_REPEATED_TITLE else ""


def passage_text(title: str, full: str, extent: tuple[int, int]) -> str:
    """Return what the encoder and the analyzer read of a passage: repeated title, line break, and its own text.

    Args:
        title: the title of the document.
        full: full text of the document, title included, with which the first passage begins.
        extent: (start, end) characters of the passage there; (0, 0): it is the whole document.
    """
    start, end = extent
    if start == 0:
        return full[: end or None]
    return full_text(repeated_title(title), full[start:end])


def searchable_texts(
    doc_id: str, title: str, metadata: Mapping[str, object], settings: IndexSettings, n_passages: int
) -> list[list[str]]:
    """Return what lexical search reads of each passage besides its text: searchable values, each in a line.

    A title and the values of a field with a weight of n follow n - 1 times, but no long title. Like a title, the
    values are repeated in all passages, unless they are long.

    Args:
        doc_id: id of the document.
        title: its title.
        metadata: its metadata.
        settings: of the index, with the searchable fields; "id" is the id of the document, too.
        n_passages: number of its passages.
    """
    paths, weights = settings.searchable, settings.field_weights
    values = [("id", doc_id)] if "id" in paths else []
    values += [
        (path, str(scalar.payload))
        for path, scalar in iterate_values(metadata)
        if path in paths and scalar.kind in (Kind.TEXT, Kind.INTEGER, Kind.FLOAT)
    ]
    text = "\n".join(value for _, value in values)
    titles = [repeated_title(title)] * (weights.get("title", 1) - 1)
    weighted = [value for path, value in values for _ in range(weights.get(path, 1) - 1)]
    others = [text, *titles, *weighted] if repeated_title(text) else ["", *titles]
    return [[text, *titles, *weighted], *[others] * (n_passages - 1)]


def has_given_id(document: Document) -> bool:
    """Return whether a document that `document_from` made was given its id; otherwise the id is random."""
    return document.origin.endswith(f"(id {shown(document.id)})")


def document_from(raw: object, where: str, path: Path | None = None) -> Document:
    """Make a document of what a caller or a file gives; what the caller changes later has no effect on it.

    Args:
        raw: a str (its text), a mapping with ``text`` or ``vectors`` and, if wanted, ``id`` (or ``_id``),
            ``title``, ``metadata`` and ``spans``, or a Document. Without an id the document gets a random one, 32
            hex digits.
        where: names the document in errors: "document 17", "line 12".
        path: the file it comes from, for errors.

    Raises:
        InvalidDocument: names the document, the field, what was expected and what was found.
    """
    place = Place(where, path)
    fields = _fields_of(raw, place)
    document_id = _id_of(fields, place)
    place = place.with_id(document_id) if "id" in fields or "_id" in fields else place
    title = _title_of(fields, place)
    given = fields.get("vectors")
    text = _text_of(fields, title, place, has_vectors=given is not None)
    metadata = freeze_metadata(fields.get("metadata"), place)
    if given is None:
        if fields.get("spans") is not None:
            raise place.error("spans", "is given without vectors", expected="'vectors' too, or neither")
        return Document(document_id, text, title, metadata, str(place))
    vectors = read_vectors(given, place)
    spans = read_spans(fields.get("spans"), len(vectors), len(full_text(title, text)), place)
    stored_as = "words" if isinstance(raw, Document) and raw.stored_as == "words" else ""
    return Document(document_id, text, title, metadata, str(place), vectors, spans, stored_as)


def _fields_of(raw: object, place: Place) -> dict[object, object]:
    """The fields in a dict of their own."""
    if isinstance(raw, str):
        return {"text": raw}
    if isinstance(raw, Document):
        fields: dict[object, object] = {
            "id": raw.id,
            "text": raw.text,
            "title": raw.title,
            "metadata": raw.metadata,
        }
        return fields if raw.vectors is None else {**fields, "vectors": raw.vectors, "spans": raw.spans or None}
    if not isinstance(raw, dict | Mapping):
        raise InvalidDocument(
            f"{place.where}: not a document",
            path=place.path,
            expected=rows_of_table(raw) or "a str or a mapping with 'text' or 'vectors'",
            actual=kind_of(raw),
        )
    fields = dict(raw)
    if not DOCUMENT_FIELDS.issuperset(fields):
        raise _unknown_fields([key for key in fields if key not in DOCUMENT_FIELDS], place)
    return fields


def _unknown_fields(unknown: list[object], place: Place) -> InvalidDocument:
    names = ", ".join(shown(key) for key in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
    return InvalidDocument(
        f"{place.where}: unknown fields: {names}; put values of your own under 'metadata', or name the field of"
        " the text with text='NAME' (on the command line --text NAME): then the others become metadata",
        path=place.path,
        expected="'id' or '_id', 'text', 'title', 'metadata', 'vectors', 'spans'",
    )


def _id_of(fields: dict[object, object], place: Place) -> str:
    if "id" in fields and "_id" in fields:
        raise place.error("id", "and field '_id' are both given", expected="one of them")
    name = "_id" if "_id" in fields else "id"
    if name not in fields:
        return uuid.uuid4().hex
    value = _str_of(fields[name], name, _EXPECTED_ID, place)
    if not value:
        raise place.error(name, "is empty", expected="at least one character")
    n_bytes = _utf8_length(value, name, place)
    if n_bytes > MAX_ID_BYTES:
        raise place.error(name, "is too long", expected=f"at most {MAX_ID_BYTES} bytes", actual=n_bytes)
    return value


def _title_of(fields: dict[object, object], place: Place) -> str:
    value = fields.get("title")
    if value is None:
        return ""
    title = _str_of(value, "title", "a str or None", place)
    _utf8_length(title, "title", place)
    return title


def _text_of(fields: dict[object, object], title: str, place: Place, *, has_vectors: bool) -> str:
    if "text" not in fields and not has_vectors:
        raise place.error("text", "is missing", expected="a str")
    value = fields.get("text")
    text = "" if value is None and has_vectors else _str_of(value, "text", "a str", place)
    if not has_vectors and not text.strip() and not title.strip():
        raise place.error("text", "is blank, as is the title", expected="a character that is not white space")
    n_characters = len(title) + len(text)
    if n_characters > MAX_TEXT_CHARACTERS:
        raise place.error(
            "text",
            "is too long: split it into several documents",
            expected=f"at most {MAX_TEXT_CHARACTERS} characters, title included",
            actual=n_characters,
        )
    _utf8_length(text, "text", place)
    return text


def _str_of(value: object, name: str, expected: str, place: Place) -> str:
    """The characters of a field as a str; an instance of a subclass might behave differently each time."""
    if not isinstance(value, str):
        raise place.error(name, "is not a str", expected=expected, actual=kind_of(value))
    return value if type(value) is str else str.__str__(value)


def _utf8_length(value: str, name: str, place: Place) -> int:
    """Bytes of the UTF-8 of ``value``; a lone surrogate has none and is an error."""
    if value.isascii():
        return len(value)
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        problem, expected, actual = surrogate_in(error)
        raise place.error(name, problem, expected=expected, actual=actual) from None
