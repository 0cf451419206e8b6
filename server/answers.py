"""Hits and documents as values of JSON."""

from __future__ import annotations

from quarry.engine import Document, Hit, Hits

__all__ = ["document_json", "hits_json"]


def hits_json(hits: Hits, *, has_texts: bool) -> dict[str, object]:
    """Return the hits of one query.

    Args:
        hits: the hits.
        has_texts: whether each hit has the whole text of its document.
    """
    return {
        "hits": [_hit_json(hit, has_texts) for hit in hits],
        "answerable": hits.answerable,
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
    found = hit.to_dict() | {"place": None if hit.place is None else str(hit.place)}
    if not has_text:
        del found["text"]
    return found
