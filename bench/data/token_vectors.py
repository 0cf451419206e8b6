"""All token vectors of a text, for libraries of late interaction; no index of Quarry's holds these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.representation.base import DocumentVectors
from quarry.formats.errors import InvalidDocument

__all__ = ["TokenRepresentation", "token_matrix"]


@dataclass(frozen=True)
class TokenRepresentation:
    """Every token's vector, special tokens left out: a `Representation`."""

    name: ClassVar[str] = "tokens"
    reads: ClassVar[VectorKind] = "token"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Take them as they are, or all with length 1; see `Representation.represent`."""
        del text
        values = token_matrix(windows, normalize=normalize)
        if not len(values):
            raise InvalidDocument("no token in the text", expected="a text with words")
        return DocumentVectors(values, tuple(() for _ in values))

    def settings(self) -> dict[str, int]:
        """There are none."""
        return {}


def token_matrix(windows: Iterable[TokenVectors], *, normalize: bool) -> npt.NDArray[np.float32]:
    """(n_tokens, dim) float32: the token vectors of all windows, in order."""
    values = np.concatenate([window.values for window in windows])
    if normalize:
        values = values / np.linalg.norm(values, axis=1, keepdims=True)
    return np.ascontiguousarray(values, np.float32)
