"""The optional last step of a search: the first hits read again by a cross-encoder, each with the query."""

from __future__ import annotations

from dataclasses import replace

from quarry.engine.documents.document import full_text
from quarry.engine.search.hits import Hits
from quarry.engine.search.reranker import Reranker

__all__ = ["reranked"]


def reranked(query: str, hits: Hits, reranker: Reranker, k: int) -> Hits:
    """The k best of `hits` by the reranker, best first; their scores are the reranker's.

    Equal scores keep their order.
    """
    if not hits:
        return hits
    scores = reranker.scores(query, [full_text(hit.title, hit.text) for hit in hits]).tolist()
    scored = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
    return Hits(sorted(scored, key=lambda hit: -hit.score)[:k])
