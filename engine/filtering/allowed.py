"""The documents of one segment that satisfy a filter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from quarry.formats.arrays import BoolArray, Float32Array, Int64Array

__all__ = ["Allowed", "AllowedDocs"]


class Allowed:
    """Some of the documents of a segment, none of them deleted.

    Attributes:
        flags: (n_docs,) bool, not to be written to.
        n: number of documents.
    """

    def __init__(self, flags: BoolArray) -> None:
        self.flags = flags
        self.n = int(np.count_nonzero(flags))

    @cached_property
    def docs(self) -> Int64Array:
        """The ordinals of the documents, (n,) int64, ascending."""
        return np.flatnonzero(self.flags)

    @cached_property
    def floor(self) -> Float32Array:
        """Initial scores, (n_docs,) float32, not to be written to: 0, -inf for all other documents."""
        return np.where(self.flags, np.float32(0), np.float32(-np.inf))


AllowedDocs: TypeAlias = Sequence[Allowed | None]
"""For each segment the documents that may be found; None: all live ones."""
