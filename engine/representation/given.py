"""The representation `Given`: vectors that come with the documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.representation.base import DocumentVectors, IntegerSettings
from quarry.formats.errors import InvalidDocument

__all__ = ["Given"]


@dataclass(frozen=True)
class Given(IntegerSettings):
    """The vectors that come with a document; there is no encoder whose vectors could be read."""

    name: ClassVar[str] = "given"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Raise InvalidDocument: the document came without vectors."""
        del text, windows, normalize
        raise InvalidDocument("the document has no vectors, and the index has no encoder", expected="vectors")
