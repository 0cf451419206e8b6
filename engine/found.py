"""A document in an answer, before its text is read."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Found"]


class Found(NamedTuple):
    """A document that made it into an answer.

    Attributes:
        segment: number of its segment in the snapshot.
        doc: its ordinal there.
        score: what it is ranked by.
        dense: its aggregated dense score, where it was computed.
        lexical: its BM25 score, where it was computed.
    """

    segment: int
    doc: int
    score: float
    dense: float | None = None
    lexical: float | None = None
