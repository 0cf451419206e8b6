"""What is known about which documents satisfy a condition before any of them is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from quarry.formats.arrays import BoolArray

__all__ = ["Bounds"]


class Bounds(NamedTuple):
    """The documents of a segment that satisfy a condition, as far as it is known.

    Attributes:
        certain: (n_docs,) bool, documents that satisfy it, not to be written to.
        possible: (n_docs,) bool, these and those that may; the same array if there are no others.
    """

    certain: BoolArray
    possible: BoolArray

    @classmethod
    def of(cls, flags: BoolArray) -> Self:
        """Return the bounds of a condition if it is known for all documents."""
        return cls(flags, flags)

    def __and__(self, other: Bounds) -> Bounds:
        return self._join(np.logical_and, other)

    def __or__(self, other: Bounds) -> Bounds:
        return self._join(np.logical_or, other)

    def __invert__(self) -> Bounds:
        possible = ~self.certain
        return Bounds.of(possible) if self.certain is self.possible else Bounds(~self.possible, possible)

    def _join(self, join: Callable[[BoolArray, BoolArray], BoolArray], other: Bounds) -> Bounds:
        certain = join(self.certain, other.certain)
        if self.certain is self.possible and other.certain is other.possible:
            return Bounds.of(certain)
        return Bounds(certain, join(self.possible, other.possible))
