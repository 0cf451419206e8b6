"""Hits and documents as values of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from quarry.engine import Document, FilePlace, Hit, Hits, Match

__all__ = ["document_json", "hits_json"]


def hits_json(hits: Hits, *, has_texts: bool) -> dict[str, object]:
    """Return the hits of one query.

    Args:
        hits: the hits.
        has_texts: whether each hit has the whole text of its document.
    """
    return {
        "hits": [_hit_json(hit, has_texts) for hit in hits],
        "exactness": hits.exactness.value,
        "coverage": None if hits.coverage is None else hits.coverage.to_dict(),
    }


def document_json(document: Document) -> dict[str, object]:
    """Return a document."""
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
    }


def _hit_json(hit: Hit, has_text: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "id": hit.id,
        "score": hit.score,
        "dense_score": hit.dense_score,
        "lexical_score": hit.lexical_score,
        "title": hit.title,
        "metadata": dict(hit.metadata),
        "place": _place_json(hit.place),
        "passages": [_passage_json(hit, match) for match in hit.matches],
        "terms": dict(hit.terms),
    }
    if has_text:
        found["text"] = hit.text
    return found


def _passage_json(hit: Hit, match: Match) -> dict[str, object]:
    return {
        "text": match.text,
        "spans": match.spans,
        "score": match.score,
        "weight": match.weight,
        "place": _place_json(hit.place_of(match)),
    }


def _place_json(place: FilePlace | None) -> Mapping[str, object] | None:
    return None if place is None else {"label": str(place), **asdict(place)}
