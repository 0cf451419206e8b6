"""Metadata of one document as the bytes that are stored: nobody can change it any more."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass

import msgpack

__all__ = ["PackedMetadata"]


@dataclass(frozen=True, slots=True, eq=False)
class PackedMetadata(Mapping[str, object]):
    """A mapping that is serialized once and read from its bytes; what it returns are copies.

    Attributes:
        packed: the mapping in msgpack.
    """

    packed: bytes

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> PackedMetadata:
        """Serialize a mapping; one that is packed already is returned as it is.

        Raises:
            TypeError: a value has a type that msgpack lacks.
            ValueError: a text has no UTF-8, or values are nested too deep.
            OverflowError: an integer takes more than 64 bits.
        """
        return metadata if isinstance(metadata, cls) else cls(msgpack.packb(dict(metadata)))

    def unpacked(self) -> dict[str, object]:
        """Return the mapping as a dict of its own."""
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
