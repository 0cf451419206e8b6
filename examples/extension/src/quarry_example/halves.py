"""A representation: one vector for the first half of the tokens of a document, and one for the second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.representation.base import DocumentVectors, drop_empty_windows, scale_rows

__all__ = ["Halves"]


@dataclass(frozen=True)
class Halves:
    """The means of equal parts of a document: two, or another number.

    Args:
        n_parts: number of parts; a document with fewer tokens has one part for each.
    """

    n_parts: int = 2
    name: ClassVar[str] = "halves"
    reads: ClassVar[str] = "token"
    pooling: ClassVar[str] = "mean"

    def settings(self) -> dict[str, int]:
        """Return what an index stores."""
        return {"n_parts": self.n_parts}

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the mean of each part."""
        kept = list(drop_empty_windows(windows))
        values = np.concatenate([window.values for window in kept])
        starts = np.concatenate([window.starts for window in kept])
        ends = np.concatenate([window.ends for window in kept])
        parts = np.array_split(np.arange(len(values)), min(self.n_parts, len(values)))
        means = np.stack([values[part].mean(axis=0) for part in parts])
        spans = tuple(((int(starts[part[0]]), int(ends[part[-1]])),) for part in parts)
        return DocumentVectors(scale_rows(means, normalize), spans)
