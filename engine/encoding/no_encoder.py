"""The encoder of an index whose documents all come with their vectors: it refuses texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.formats.arrays import Float32Array
from quarry.formats.errors import InvalidDocument, InvalidQuery
from quarry.formats.manifest import EncoderRecord

__all__ = ["NoEncoder", "has_encoder"]

_IDENTITY = "given vectors"


@dataclass(frozen=True)
class NoEncoder:
    """An `Encoder` that makes no vectors: every text is refused.

    Attributes:
        dim: length of the stored vectors.
        normalize: whether the vectors of documents and queries are scaled to norm 1.
    """

    dim: int
    normalize: bool

    name: ClassVar[str] = "none"
    identity: ClassVar[str] = _IDENTITY
    beta: ClassVar[None] = None
    vector_kinds: ClassVar[frozenset[VectorKind]] = frozenset()
    trained_representation: ClassVar[None] = None

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Raise InvalidDocument."""
        del text
        return self._refuse_document()

    def encode_query(self, text: str) -> Float32Array:
        """Raise InvalidQuery."""
        del text
        raise InvalidQuery(
            "the index was built without an encoder, so a text has no vector", expected="vector=..."
        )

    @staticmethod
    def _refuse_document() -> NoReturn:
        raise InvalidDocument(
            "field 'vectors' is missing, and the index was built without an encoder", expected="the vectors"
        )


def has_encoder(record: EncoderRecord) -> bool:
    """Return whether the texts of an index have vectors: false if it was built from given vectors alone."""
    return record.identity != _IDENTITY
