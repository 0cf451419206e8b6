"""The documents of one segment that a filter lets pass."""

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
        flags: (n_docs,) bool, never written to: which they are.
        n: how many.
    """

    def __init__(self, flags: BoolArray) -> None:
        self.flags = flags
        self.n = int(np.count_nonzero(flags))

    @cached_property
    def docs(self) -> Int64Array:
        """(n,) int64, their ordinals, ascending."""
        return np.flatnonzero(self.flags)

    @cached_property
    def floor(self) -> Float32Array:
        """(n_docs,) float32, never written to: 0, and -inf for documents that may not be found."""
        return np.where(self.flags, np.float32(0), np.float32(-np.inf))


AllowedDocs: TypeAlias = Sequence[Allowed | None]
"""For each segment the documents that may be found; None: all that are not deleted."""
