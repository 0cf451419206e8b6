"""A document as it comes in: its id, text, title and metadata, and the rules for each."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import msgpack

from quarry.formats.errors import InvalidDocument

__all__ = [
    "MAX_ID_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_METADATA_DEPTH",
    "MAX_TEXT_CHARACTERS",
    "Document",
    "document_from",
    "full_text",
]

MAX_ID_BYTES = 4 << 10
"""The longest id, in bytes of UTF-8."""
MAX_TEXT_CHARACTERS = 4 << 20
"""The longest title and text together, in characters (code points)."""
MAX_METADATA_BYTES = 64 << 10
"""The largest metadata of a document, serialised with msgpack."""
MAX_METADATA_DEPTH = 8
"""How deep lists and dicts may be nested in metadata; the metadata mapping itself is the first level."""

_FIELDS = frozenset({"id", "_id", "text", "title", "metadata"})
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Document:
    """A document to be indexed. ``document_from`` makes one and holds it to the rules.

    Attributes:
        id: non-empty, unique in an index, at most 4 KiB of UTF-8; comes back exactly as it was given.
        text: what is searched, together with the title: one of the two is not blank, and both together have at
            most 4 Mi characters.
        title: may be empty.
        metadata: str keys; values str, signed 64-bit int, finite float, bool, None, and lists and dicts
            of them; at most 64 KiB serialised. Kept and given back; what filters read (see
            `quarry.engine.filtering.filter`).
        origin: where it was read, for messages: "document 17 (id 'moon')", "docs.jsonl: line 12"; may be empty.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    origin: str = field(default="", repr=False, compare=False)

    @property
    def full_text(self) -> str:
        """What the encoder reads: title, line break, text; only the text where the title is empty."""
        return full_text(self.title, self.text)


def full_text(title: str, text: str) -> str:
    """Title, line break, text; only the text where the title is empty."""
    return f"{title}\n{text}" if title else text


@dataclass(frozen=True, slots=True)
class _Place:
    """Which document is being read, for the messages of errors."""

    where: str
    path: Path | None

    def error(self, name: str, problem: str, *, expected: object = None, actual: object = None) -> InvalidDocument:
        message = f"{self.where}: field {name!r} {problem}"
        return InvalidDocument(message, path=self.path, expected=expected, actual=actual)

    def __str__(self) -> str:
        return f"{self.path}: {self.where}" if self.path else self.where

    def with_id(self, document_id: str) -> _Place:
        return _Place(f"{self.where} (id {_shown(document_id)})", self.path)


def document_from(raw: object, where: str, path: Path | None = None) -> Document:
    """Make a document of what a caller or a file gives.

    Args:
        raw: a str (its text), a mapping with ``text`` and, where wanted, ``id`` (or ``_id``), ``title``
            and ``metadata``, or a Document. Without an id the document gets a random one, 32 hex digits.
        where: names the document in errors: "document 17", "line 12".
        path: the file it comes from, for errors.

    Raises:
        InvalidDocument: names the document, the field, what was expected and what was found.
    """
    place = _Place(where, path)
    fields = _fields_of(raw, place)
    document_id = _id_of(fields, place)
    place = place.with_id(document_id) if "id" in fields or "_id" in fields else place
    title = _title_of(fields, place)
    text = _text_of(fields, title, place)
    return Document(document_id, text, title, _metadata_of(fields, place), str(place))


def _fields_of(raw: object, place: _Place) -> Mapping[object, object]:
    if isinstance(raw, str):
        return {"text": raw}
    if isinstance(raw, Document):
        return {"id": raw.id, "text": raw.text, "title": raw.title, "metadata": raw.metadata}
    if not isinstance(raw, Mapping):
        raise InvalidDocument(
            f"{place.where}: not a document",
            path=place.path,
            expected="a str or a mapping with 'text'",
            actual=_kind(raw),
        )
    unknown = [key for key in raw if key not in _FIELDS]
    if unknown:
        raise _unknown_fields(unknown, place)
    return raw


def _unknown_fields(unknown: list[object], place: _Place) -> InvalidDocument:
    names = ", ".join(_shown(key) for key in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
    return InvalidDocument(
        f"{place.where}: unknown fields: {names}; put values of your own under 'metadata'",
        path=place.path,
        expected="'id' or '_id', 'text', 'title', 'metadata'",
    )


def _id_of(fields: Mapping[object, object], place: _Place) -> str:
    if "id" in fields and "_id" in fields:
        raise place.error("id", "and field '_id' are both given", expected="one of them")
    name = "_id" if "_id" in fields else "id"
    if name not in fields:
        return uuid.uuid4().hex
    value = fields[name]
    if not isinstance(value, str):
        raise place.error(name, "is not a str", expected="a str", actual=_kind(value))
    if not value:
        raise place.error(name, "is empty", expected="at least one character")
    n_bytes = _utf8_length(value, name, place)
    if n_bytes > MAX_ID_BYTES:
        raise place.error(name, "is too long", expected=f"at most {MAX_ID_BYTES} bytes", actual=n_bytes)
    return value


def _title_of(fields: Mapping[object, object], place: _Place) -> str:
    value = fields.get("title")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise place.error("title", "is not a str", expected="a str or None", actual=_kind(value))
    _utf8_length(value, "title", place)
    return value


def _text_of(fields: Mapping[object, object], title: str, place: _Place) -> str:
    if "text" not in fields:
        raise place.error("text", "is missing", expected="a str")
    value = fields["text"]
    if not isinstance(value, str):
        raise place.error("text", "is not a str", expected="a str", actual=_kind(value))
    if not value.strip() and not title.strip():
        raise place.error("text", "is blank, as is the title", expected="a character that is not white space")
    n_characters = len(title) + len(value)
    if n_characters > MAX_TEXT_CHARACTERS:
        raise place.error(
            "text",
            "is too long: split it into several documents",
            expected=f"at most {MAX_TEXT_CHARACTERS} characters, title included",
            actual=n_characters,
        )
    _utf8_length(value, "text", place)
    return value


def _metadata_of(fields: Mapping[object, object], place: _Place) -> Mapping[str, object]:
    value = fields.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise place.error("metadata", "is not a mapping", expected="a mapping or None", actual=_kind(value))
    copy = dict(value)
    _check_json_value(copy, "metadata", 1, place)
    n_bytes = len(msgpack.packb(copy)) if copy else 0
    if n_bytes > MAX_METADATA_BYTES:
        limit = f"at most {MAX_METADATA_BYTES} bytes serialised"
        raise place.error("metadata", "is too large", expected=limit, actual=n_bytes)
    return copy


def _check_json_value(value: object, name: str, depth: int, place: _Place) -> None:
    """Refuse whatever would not come back from the index as it went in."""
    if isinstance(value, dict | list):
        if depth > MAX_METADATA_DEPTH:
            raise place.error(name, "is nested too deep", expected=f"at most {MAX_METADATA_DEPTH} levels")
        _check_members(value, name, depth, place)
    elif isinstance(value, str):
        _utf8_length(value, name, place)
    elif not _is_plain_scalar(value):
        expected = "str, signed 64-bit int, finite float, bool, None, a list or a dict"
        raise place.error(name, "cannot be stored", expected=expected, actual=_kind(value))


def _check_members(value: dict[object, object] | list[object], name: str, depth: int, place: _Place) -> None:
    if isinstance(value, list):
        for i, member in enumerate(value):
            _check_json_value(member, f"{name}[{i}]", depth + 1, place)
        return
    for key, member in value.items():
        if not isinstance(key, str):
            raise place.error(name, "has a key that is not a str", expected="str keys", actual=_kind(key))
        _utf8_length(key, name, place)
        _check_json_value(member, f"{name}.{key[:_SHOWN_CHARACTERS]}", depth + 1, place)


def _is_plain_scalar(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return value is None


def _utf8_length(value: str, name: str, place: _Place) -> int:
    """Bytes of the UTF-8 of ``value``; a lone surrogate has none and is an error."""
    if value.isascii():
        return len(value)
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        code = f"U+{ord(value[error.start]):04X}"
        raise place.error(
            name,
            f"has a lone surrogate at character {error.start}",
            expected="text that UTF-8 can encode",
            actual=code,
        ) from None


def _kind(value: object) -> str:
    """Say what a value is, for a message: its type, of a number also what keeps it from being stored."""
    if isinstance(value, float) and not isfinite(value):
        return repr(value)
    if isinstance(value, int) and value.bit_length() > 63:
        return f"int of {value.bit_length()} bits"
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return "None" if value is None else name


def _shown(value: object) -> str:
    """Write a name or an id for a message, in one line of bounded length."""
    if not isinstance(value, str):
        return f"a key of type {type(value).__name__}"
    return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "...")
