"""How much an answer promises."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["Exactness"]


class Exactness(StrEnum):
    """What is known about the documents that are not in an answer.

    Scores are exact always: the query in full precision against the vectors as stored (in an index of codes
    alone, against what the codes stand for).
    """

    EXACT = "exact"
    """No other document of the index, or of those a filter allows, has a better score."""
    PROBED_LISTS = "exact over probed lists"
    """No other document with a vector in one of the inverted lists that were read has a better score."""
    APPROXIMATE = "approximate"
    """Stage 1 chose by codes or by a graph: a better one may have been passed over."""

    @staticmethod
    def weakest(parts: Iterable[Exactness]) -> Exactness:
        """What an answer made of these promises."""
        order = list(Exactness)
        return max(parts, key=order.index, default=Exactness.EXACT)
