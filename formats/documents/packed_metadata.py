"""Immutable metadata of one document, in serialized form."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass

import msgpack

__all__ = ["PackedMetadata"]

_EMPTY_MAP = b"\x80"  # in msgpack


@dataclass(frozen=True, slots=True, eq=False)
class PackedMetadata(Mapping[str, object]):
    """A mapping that is serialized once; every access unpacks it and returns copies.

    Attributes:
        packed: the mapping in msgpack.
    """

    packed: bytes

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> PackedMetadata:
        """Serialize a mapping; a PackedMetadata is returned unchanged.

        Raises:
            TypeError: a value has a type that msgpack does not support.
            ValueError: a text cannot be encoded as UTF-8, or values are nested too deep.
            OverflowError: an integer takes more than 64 bits.
        """
        return metadata if isinstance(metadata, cls) else cls(msgpack.packb(dict(metadata)))

    @property
    def is_empty(self) -> bool:
        """Whether it has no item; nothing is unpacked for that."""
        return self.packed == _EMPTY_MAP

    def unpacked(self) -> dict[str, object]:
        """Return the mapping as a new dict."""
        metadata: dict[str, object] = msgpack.unpackb(self.packed)
        return metadata

    def items(self) -> ItemsView[str, object]:
        """Return all items, unpacked once."""
        return self.unpacked().items()

    def __getitem__(self, key: str) -> object:
        return self.unpacked()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unpacked())

    def __len__(self) -> int:
        return len(self.unpacked())
