"""Builds hits from the documents found: reads ids and documents, and explains scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quarry.engine.analysis.languages import LanguageEvidence, weigh_languages
from quarry.engine.analysis.phrases import PHRASE_SIGN
from quarry.engine.analysis.synonyms import alternatives_of
from quarry.engine.documents.document import full_text, searchable_texts
from quarry.engine.lexical.bm25 import Bm25Query
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.aggregation import compute_centroid_weights
from quarry.engine.scoring.metric import Metric
from quarry.engine.scoring.ranking import Ranking
from quarry.engine.search.hits.hits import Hit, Hits, Match
from quarry.engine.search.passages import PassageFinder, PassagePlace, QueryWords
from quarry.engine.search.query import Query
from quarry.engine.search.relevance import QueryRelevance
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import Float32Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.documents.store import PackedDocument, StoredDocument
from quarry.formats.snapshot import Snapshot

__all__ = ["Answer", "HitBuilder", "find_matches", "set_metric_scores"]

_ALL_WORDS = 0.999  # share of the words of a query, but for rounding
_MAX_CHARACTERS = 100  # of a hit, to see its language: with 200 as many are right, in twice the time


class Answer(NamedTuple):
    """The documents found for one query in one partition.

    Attributes:
        ranking: the documents, best first.
        query: the query of which they are the answer.
        relevance: the model of relevance, prepared for the query; None without a calibration.
        terms: the query's terms with their postings; None in dense mode, or if they are not looked up yet.
    """

    ranking: Ranking
    query: Query
    relevance: QueryRelevance | None = None
    terms: Bm25Query | None = None


class HitBuilder:
    """Builds the hits of one snapshot; safe to use from several threads.

    Args:
        snapshot: the snapshot; its segments are used even after it is closed.
        searcher: computes the scores of centroids, for passages.
    """

    def __init__(self, snapshot: Snapshot, searcher: Searcher) -> None:
        self._segments = snapshot.segments
        self._settings = snapshot.manifest.settings
        self._searcher = searcher

    def build(self, answer: Answer, options: SearchOptions) -> Hits:
        """Return the hits of an answer in its order, each with a lazy passage finder."""
        stop_if_cancelled()
        ranking = answer.ranking
        ids, documents, places = self._read(ranking, options)
        unknown = [None] * len(ids)
        dense_scores = unknown if ranking.dense is None else ranking.dense.tolist()
        lexical_scores = unknown if ranking.lexical is None else ranking.lexical.tolist()
        scores, words = self._centroid_scores(answer), answer.query.words(answer.terms)
        weight = {"dense": 1.0, "lexical": 0.0}.get(options.mode, options.fusion_weight)
        finders = [PassageFinder(own, words, weight, place) for own, place in zip(scores, places, strict=True)]
        relevance: Sequence[float | None] = unknown
        if answer.relevance is not None:
            shares, lexical = self._shares(answer), answer.relevance.lexical
            estimated = answer.relevance.estimate(ranking.dense, shares, len(ids))
            if self._settings.searchable and shares is not None and words is not None and lexical is not None:
                by_words = QueryRelevance(lexical, 0.0).estimate(None, shares, len(ids))
                for number in np.flatnonzero((shares > _ALL_WORDS) & (estimated < by_words)).tolist():
                    if self._names(words, answer, ids[number], documents[number].unpack()):
                        estimated[number] = by_words[number]
            if answer.relevance.between is not None and answer.query.text is not None:
                between = answer.relevance._replace(model=answer.relevance.between)
                foreign = between.estimate(ranking.dense, None, len(ids))
                language = weigh_languages(answer.query.text)
                for number in np.flatnonzero(foreign > estimated).tolist():
                    if language.is_foreign_to(_weigh_languages_of(documents[number].unpack(), places[number])):
                        estimated[number] = foreign[number]
            relevance = estimated.tolist()
        columns = zip(
            *(ids, ranking.scores.tolist(), documents, dense_scores, lexical_scores, relevance, finders, places),
            strict=True,
        )
        hits = Hits(
            (
                Hit(
                    *(doc_id, score, document),
                    dense_score=dense,
                    lexical_score=lexical,
                    relevance=probability,
                    _is_explained=options.explain,
                    _finder=finder,
                    _place=place if options.unit == "passage" else None,
                )
                for doc_id, score, document, dense, lexical, probability, finder, place in columns
            ),
            ranking.exactness,
        )
        if options.explain:
            for number, hit in enumerate(hits):
                self._explain(hit, documents[number].unpack(), answer, number, finders[number])
        return hits

    def _names(self, words: QueryWords, answer: Answer, doc_id: str, stored: StoredDocument) -> bool:
        """Return whether the searchable fields of a document have all words of a query."""
        ((text, *_),) = searchable_texts(doc_id, stored.title, stored.metadata, self._settings, 1)
        found = {term for word in words.find(text) for term in word.terms}
        names = [] if answer.terms is None else [name for name in answer.terms.idf if name[0] != PHRASE_SIGN]
        return all(any(found.issuperset(each) for each in alternatives_of(name)) for name in names)

    def _shares(self, answer: Answer) -> Float32Array | None:
        """Return the share of the query's information that each document of an answer has; None without terms."""
        if answer.terms is None:
            return None
        ranking = answer.ranking
        if len(self._segments) == 1:
            return answer.terms.shares(0, ranking.docs)
        shares = np.zeros(len(ranking.docs), np.float32)
        for number in np.unique(ranking.segments).tolist():
            places = np.flatnonzero(ranking.segments == number)
            shares[places] = answer.terms.shares(number, ranking.docs[places])
        return shares

    def _centroid_scores(self, answer: Answer) -> Sequence[Float32Array | None]:
        """Return for each document of an answer the scores of its centroids; None in lexical mode."""
        ranking = answer.ranking
        all_scores: list[Float32Array | None] = [None] * len(ranking.docs)
        vector = answer.query.vector
        if vector is None:
            return all_scores
        for number in np.unique(ranking.segments).tolist():
            places = np.flatnonzero(ranking.segments == number)
            scores = self._searcher.rescorer(number).centroid_scores(vector, ranking.docs[places])
            for place, own in zip(places.tolist(), scores, strict=True):
                all_scores[place] = own
        return all_scores

    def _read(
        self, ranking: Ranking, options: SearchOptions
    ) -> tuple[list[str], list[PackedDocument], list[PassagePlace]]:
        """Return ids, documents and places in them, in the order of the ranking."""
        stored: dict[int, tuple[str, PackedDocument, PassagePlace]] = {}
        numbers = set(ranking.segments.tolist())
        for number in numbers:
            places = np.flatnonzero(ranking.segments == number)
            reader = self._segments[number].reader
            passages = ranking.docs[places]
            docs = reader.passages.documents_of(passages)
            if options.unit == "document":
                ids, packed = reader.ids.many(docs), reader.documents.packed(docs)
            else:  # a document is in memory once, and decompressed once, for all of its passages
                own, owners = np.unique(docs, return_inverse=True)
                columns = reader.ids.many(own), reader.documents.packed(own)
                ids, packed = ([each[owner] for owner in owners.tolist()] for each in columns)
            parts = (ids, packed, PassagePlace.of(reader, passages, options.context))
            if len(numbers) == 1:
                return parts
            stored |= zip(places.tolist(), zip(*parts, strict=True), strict=True)
        ordered = [stored[place] for place in range(len(stored))]
        return [each[0] for each in ordered], [each[1] for each in ordered], [each[2] for each in ordered]

    def _explain(
        self, hit: Hit, stored: StoredDocument, answer: Answer, number: int, finder: PassageFinder
    ) -> None:
        """Add the passages and terms that matched, for the hit of that number."""
        segment, doc = int(answer.ranking.segments[number]), int(answer.ranking.docs[number])
        if finder.dense is not None:
            hit.matches = find_matches(stored, finder.dense, self._settings.beta, finder.place)
        if answer.terms is not None:
            hit.terms = answer.terms.term_scores(segment, doc)
            mistyped = answer.terms.mistyped
            hit.mistyped = {term: mistyped[term] for term in hit.terms if term in mistyped}


def _weigh_languages_of(stored: StoredDocument, place: PassagePlace) -> LanguageEvidence:
    """Return what speaks for the languages of a passage, given its document."""
    return weigh_languages((place.text(stored) or stored.title)[:_MAX_CHARACTERS])


def find_matches(
    stored: StoredDocument, scores: Float32Array, beta: float | None, place: PassagePlace
) -> tuple[Match, ...]:
    """Return the parts of a passage that contribute to its score, by descending weight.

    Args:
        stored: its document.
        scores: (n_centroids,) float32, the scores of its centroids.
        beta: inverse temperature of the aggregation; None (the maximum): only the best centroid contributes.
        place: the place of the passage.

    Raises:
        CorruptFile: the number of stored spans differs from the number of centroids.
    """
    spans = place.spans(stored, len(scores))
    text = full_text(stored.title, stored.text)
    weights = compute_centroid_weights(scores, beta)
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


def set_metric_scores(
    metric: Metric, queries: Iterable[Query], all_hits: Iterable[Hits], *, is_dense: bool
) -> None:
    """Replace the dense scores of hits, and the scores of their matches, by those that users know.

    Args:
        metric: the metric of the index.
        queries: that were searched.
        all_hits: the hits of each query; changed.
        is_dense: whether the hits are ranked by dense scores.
    """
    if metric.name != "l2" and metric.mean is None:
        return
    for vector, hits in ((query.vector, hits) for query, hits in zip(queries, all_hits, strict=True)):
        if vector is None:  # nothing was searched by vectors
            continue
        for hit in hits:
            if is_dense:
                assert hit.dense_score is not None
                boost = (hit.score - hit.dense_score) / metric.score_unit
                hit.score = metric.score(hit.dense_score, vector) + boost
            if hit.dense_score is not None:
                hit.dense_score = metric.score(hit.dense_score, vector)
            hit.matches = tuple(replace(each, score=metric.score(each.score, vector)) for each in hit.matches)
