"""Passages as the adapters return them: an id of their own, and what is known of them as metadata."""

from __future__ import annotations

from typing import Any

from quarry.engine import Hit

__all__ = ["describe", "passage_id", "start_in_text"]


def passage_id(hit: Hit) -> str:
    """Return the id of a hit's document, with "#" and a number if it is one of several passages: "book#12"."""
    return f"{hit.id}#{hit.passage}" if hit.is_part else hit.id


def describe(hit: Hit, *, is_scored: bool = True) -> dict[str, Any]:
    """Return what is known of a hit beside its text and the metadata of its document, as far as it has a value.

    Args:
        hit: the hit.
        is_scored: whether with its score and relevance, which differ when two queries find the same passage.
    """
    place = hit.place
    values = {
        "document_id": hit.id,
        "passage": hit.passage,
        "start_index": start_in_text(hit),
        "title": hit.title or None,
        "place": None if place is None else str(place),
        "headings": list(place.headings) or None if place else None,
        "score": hit.score if is_scored else None,
        "relevance": hit.relevance if is_scored else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def start_in_text(hit: Hit) -> int | None:
    """Return where a passage begins in the text of its document, without the title; None if it is no passage."""
    return None if hit.extent is None else max(0, hit.extent[0] - (len(hit.title) + 1 if hit.title else 0))
