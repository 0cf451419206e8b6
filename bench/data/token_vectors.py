"""All token vectors of a text, for libraries that search by late interaction. Quarry does not store them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.representation.base import DocumentVectors
from quarry.formats.errors import InvalidDocument

__all__ = ["TokenRepresentation", "stack_tokens"]


@dataclass(frozen=True)
class TokenRepresentation:
    """A `Representation` that keeps the vector of every token, without special tokens."""

    name: ClassVar[str] = "tokens"
    reads: ClassVar[VectorKind] = "token"
    pooling: ClassVar[str | None] = None

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Return the token vectors, with L2 norm 1 if requested; see `Representation.represent`."""
        del text
        values = stack_tokens(windows, normalize=normalize)
        if not len(values):
            raise InvalidDocument("no token in the text", expected="a text with words")
        return DocumentVectors(values, tuple(() for _ in values))

    def settings(self) -> dict[str, int]:
        """Return no settings."""
        return {}


def stack_tokens(windows: Iterable[TokenVectors], *, normalize: bool) -> npt.NDArray[np.float32]:
    """Return the token vectors of all windows in order, (n_tokens, dim) float32."""
    values = np.concatenate([window.values for window in windows])
    if normalize:
        values = values / np.linalg.norm(values, axis=1, keepdims=True)
    return np.ascontiguousarray(values, np.float32)
