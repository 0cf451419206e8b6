"""What a search returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Hit", "Match"]


@dataclass(frozen=True, slots=True)
class Match:
    """A part of a document that made it a hit: the text whose tokens formed one centroid.

    Attributes:
        spans: (start, end) characters in the document's full text (its title, a line break, its text).
        text: what stands there, spans joined by " … ".
        score: inner product of the query and the centroid.
        weight: its share in the document's score, from 0 to 1; the weights of a document add up to 1.
    """

    spans: tuple[tuple[int, int], ...]
    text: str
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found.

    Attributes:
        id: the document's id.
        score: larger is better, always.
        text: the document's text.
        title: its title, or "".
        metadata: what was stored with it.
        matches: with ``explain=True`` the parts that matched, by falling weight; else empty.
    """

    id: str
    score: float
    text: str
    title: str
    metadata: Mapping[str, object]
    matches: tuple[Match, ...] = field(default=())
