"""The metadata of a document, checked and serialized when the document is taken.

Documents are encoded while later ones are read, and a caller may use the same dict or list again for the next
document. So metadata is copied, the copy is checked, and from then on there is only what the copy was packed to.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import msgpack

from quarry.engine.arguments import python_scalar
from quarry.engine.documents.place import SHOWN_CHARACTERS, Place, kind_of, surrogate_in
from quarry.formats.documents.packed_metadata import PackedMetadata

__all__ = ["MAX_METADATA_BYTES", "MAX_METADATA_DEPTH", "freeze_metadata"]

MAX_METADATA_BYTES = 64 << 10
"""The largest metadata of a document, serialized with msgpack."""
MAX_METADATA_DEPTH = 8
"""How deep lists and dicts may be nested in metadata; the metadata mapping itself is the first level."""

_EMPTY = PackedMetadata.of({})
_STORABLE = "str, signed 64-bit int, finite float, bool, None, a list or a dict"
_LIMIT = f"at most {MAX_METADATA_BYTES} bytes serialized"


def freeze_metadata(value: object, place: Place) -> PackedMetadata:
    """Check metadata and pack it; later changes to `value` have no effect.

    Args:
        value: what the caller gave: a mapping, or None.
        place: the place of the document, for errors.

    Raises:
        InvalidDocument: names the value that cannot be stored, or what is too large or nested too deep.
    """
    if value is None:
        return _EMPTY
    if isinstance(value, PackedMetadata):
        return value
    if not isinstance(value, Mapping):
        raise place.error("metadata", "is not a mapping", expected="a mapping or None", actual=kind_of(value))
    if not value:
        return _EMPTY
    try:
        copy = _Copy().of(value if isinstance(value, dict) else dict(value), 1)
    except _TooLargeError:
        raise place.error("metadata", "is too large", expected=_LIMIT) from None
    except _RefusedError as refused:
        name = "metadata" + "".join(reversed(refused.steps))
        raise place.error(name, refused.problem, expected=refused.expected, actual=refused.actual) from None
    packed: bytes = msgpack.packb(copy)
    if len(packed) > MAX_METADATA_BYTES:
        raise place.error("metadata", "is too large", expected=_LIMIT, actual=len(packed))
    return PackedMetadata(packed)


class _RefusedError(Exception):
    """A value that cannot be stored; the way to it is added while the error passes the containers around it."""

    def __init__(self, problem: str, expected: str, actual: object = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.expected = expected
        self.actual = actual
        self.steps: list[str] = []


class _TooLargeError(Exception):
    """All of the metadata is too large, wherever that was noticed."""


class _Copy:
    """Copies a value of builtin types, and stops if the copy is too large to be stored.

    A member of a list, a value of a dict and a character take a byte or more each. So a list that holds another
    one many times over, level after level, is refused quickly too.
    """

    def __init__(self) -> None:
        self._left = MAX_METADATA_BYTES

    def of(self, value: object, depth: int) -> object:
        """Return the copy; subclasses of builtin types become those types.

        Raises:
            _RefusedError: something in it would not come back from the index as it went in.
            _TooLargeError: all that was copied so far takes more than `MAX_METADATA_BYTES`.
        """
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return int.__int__(value)
        if isinstance(value, float) and isfinite(value):
            return float.__float__(value)
        if (plain := python_scalar(value)) is not value:
            return self.of(plain, depth)
        if not isinstance(value, dict | list):
            raise _RefusedError("cannot be stored", _STORABLE, kind_of(value))
        if depth > MAX_METADATA_DEPTH:
            raise _RefusedError("is nested too deep", f"at most {MAX_METADATA_DEPTH} levels")
        self._take(len(value))
        return self._dict(value, depth + 1) if isinstance(value, dict) else self._list(value, depth + 1)

    def _dict(self, value: dict[object, object], depth: int) -> dict[str, object]:
        copy: dict[str, object] = {}
        name = None
        try:
            for key, member in list(value.items()):  # a list: another thread may change the dict
                name = None
                name = self._key(key)
                copy[name] = self.of(member, depth)
        except _RefusedError as refused:
            refused.steps.append("" if name is None else f".{name[:SHOWN_CHARACTERS]}")
            raise
        return copy

    def _list(self, value: list[object], depth: int) -> list[object]:
        copy: list[object] = []
        try:
            for member in list(value):
                copy.append(self.of(member, depth))  # noqa: PERF401  # how many there are says which one failed
        except _RefusedError as refused:
            refused.steps.append(f"[{len(copy)}]")
            raise
        return copy

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise _RefusedError("has a key that is not a str", "str keys", kind_of(key))
        return self._text(key)

    def _text(self, value: str) -> str:
        text = value if type(value) is str else str.__str__(value)
        self._take(len(text))
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise _RefusedError(*surrogate_in(error)) from None
        return text

    def _take(self, n_bytes: int) -> None:
        self._left -= n_bytes
        if self._left < 0:
            raise _TooLargeError
