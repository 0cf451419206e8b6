"""The representations `FirstM` (ME-BERT) and `Cls`: the vectors of a document's first tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.representation.base import (
    DocumentVectors,
    IntegerSettings,
    drop_empty_windows,
    scale_rows,
    window_extent,
)
from quarry.formats.arrays import Float32Array

__all__ = ["Cls", "FirstM"]


@dataclass(frozen=True)
class FirstM(IntegerSettings):
    """The first m token vectors, [CLS] the first of them: ME-BERT (Luan et al. 2021, section 3).

    For encoders trained for it. A document of fewer tokens has fewer centroids. The span of the [CLS] vector
    is the whole first window. Reads no window beyond the one that holds the m-th token.

    Attributes:
        n_vectors: m, 1 to 4096; 3, 4 or 8 in the paper.
    """

    name: ClassVar[str] = "first_m"
    pooling: ClassVar[str | None] = "cls"
    n_vectors: int = 8

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroids of a document; see ``Representation.represent``."""
        del text
        values: list[Float32Array] = []
        spans: list[tuple[int, int]] = []
        for window in drop_empty_windows(windows):
            if not values:
                values.append(window.first[np.newaxis])
                spans.append(window_extent(window))
            missing = self.n_vectors - len(spans)
            values.append(window.values[:missing])
            spans += zip(window.starts[:missing].tolist(), window.ends[:missing].tolist(), strict=True)
            if len(spans) == self.n_vectors:
                break
        return DocumentVectors(scale_rows(np.concatenate(values), normalize), tuple((span,) for span in spans))


@dataclass(frozen=True)
class Cls(IntegerSettings):
    """One vector: the [CLS] vector of the first window (section 4.1 of Luan et al. 2021, with m = 1).

    Reads no other window.
    """

    name: ClassVar[str] = "cls"
    pooling: ClassVar[str | None] = "cls"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Compute the centroid of a document; see ``Representation.represent``."""
        return FirstM(1).represent(text, windows, normalize)
