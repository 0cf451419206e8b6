"""Builds hits from the documents found: reads ids and documents, and explains scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.documents.document import full_text
from quarry.engine.scoring.aggregation import centroid_weights
from quarry.engine.scoring.ranking import Ranking
from quarry.engine.search.hits import Hit, Hits, Match
from quarry.engine.search.retriever import Answer
from quarry.engine.search.searcher import Searcher
from quarry.formats.documents.spans import unpack_spans
from quarry.formats.documents.store import PackedDocument, StoredDocument
from quarry.formats.errors import CorruptFile
from quarry.formats.snapshot import Snapshot

__all__ = ["HitBuilder", "find_matches"]


class HitBuilder:
    """Builds the hits of one snapshot; safe to use from several threads.

    Args:
        snapshot: the snapshot; its segments are used even after it is closed.
        searcher: computes the scores of centroids for explanations.
    """

    def __init__(self, snapshot: Snapshot, searcher: Searcher) -> None:
        self._segments = snapshot.segments
        self._beta = snapshot.manifest.settings.beta
        self._searcher = searcher

    def build(self, answer: Answer) -> Hits:
        """Return the hits of an answer in its order, explained by the parts of the query that it holds."""
        ranking = answer.ranking
        ids, documents = self._read(ranking)
        unknown = [None] * len(ids)
        dense_scores = unknown if ranking.dense is None else ranking.dense.tolist()
        lexical_scores = unknown if ranking.lexical is None else ranking.lexical.tolist()
        columns = zip(ids, ranking.scores.tolist(), documents, dense_scores, lexical_scores, strict=True)
        hits = Hits(
            (
                Hit(doc_id, score, document, dense_score=dense, lexical_score=lexical)
                for doc_id, score, document, dense, lexical in columns
            ),
            ranking.exactness,
        )
        if answer.vector is not None or answer.terms is not None:
            for number, hit in enumerate(hits):
                self._explain(hit, documents[number], answer, number)
        return hits

    def _read(self, ranking: Ranking) -> tuple[list[str], list[PackedDocument]]:
        """Return ids and documents in the order of the ranking."""
        stored: dict[int, tuple[str, PackedDocument]] = {}
        numbers = set(ranking.segments.tolist())
        for number in numbers:
            places = np.flatnonzero(ranking.segments == number)
            reader, docs = self._segments[number].reader, ranking.docs[places]
            ids, documents = reader.ids.many(docs), reader.documents.packed(docs)
            if len(numbers) == 1:
                return ids, documents
            stored |= zip(places.tolist(), zip(ids, documents, strict=True), strict=True)
        pairs = [stored[place] for place in range(len(stored))]
        return [doc_id for doc_id, _ in pairs], [document for _, document in pairs]

    def _explain(self, hit: Hit, document: PackedDocument, answer: Answer, number: int) -> None:
        """Add the passages and terms that matched, for the hit of that number."""
        segment, doc = int(answer.ranking.segments[number]), int(answer.ranking.docs[number])
        if answer.vector is not None:
            scores = self._searcher.centroid_scores(answer.vector, segment, doc)
            path = self._segments[segment].reader.path
            hit.matches = find_matches(document.unpack(), scores, self._beta, path)
        if answer.terms is not None:
            hit.terms = answer.terms.term_scores(segment, doc)


def find_matches(
    stored: StoredDocument, scores: npt.NDArray[np.float32], beta: float | None, path: Path
) -> tuple[Match, ...]:
    """Return the passages that contribute to the score of a document, by descending weight.

    Args:
        stored: the document.
        scores: (n_centroids,) float32, the scores of its centroids.
        beta: inverse temperature of the aggregation; None (the maximum): only the best centroid contributes.
        path: file of the document, for messages.

    Raises:
        CorruptFile: the number of stored spans differs from the number of centroids.
    """
    spans = unpack_spans(stored.spans, path)
    if len(spans) != len(scores):
        raise CorruptFile("spans do not fit the centroids", path=path, expected=len(scores), actual=len(spans))
    text = full_text(stored.title, stored.text)
    weights = centroid_weights(scores, beta)
    order = np.argsort(-weights, kind="stable")
    return tuple(
        Match(
            spans=tuple(spans[number]),
            text=" … ".join(text[low:high] for low, high in spans[number]),
            score=float(scores[number]),
            weight=float(weights[number]),
        )
        for number in order[weights[order] > 0].tolist()
    )
