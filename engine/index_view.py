"""One generation of an index, ready to be searched: what changes together at a refresh."""

from __future__ import annotations

import numpy as np

from engine.explanation import matches
from engine.found import Found
from engine.hits import Hit, Match
from engine.hybrid_searcher import HybridSearcher
from engine.lexical_searcher import LexicalSearcher
from engine.options import OpenOptions, SearchOptions
from engine.query_vectors import Vectors, check_vectors
from engine.searcher import Searcher
from formats.directory import Directory
from formats.doc_store import StoredDocument
from formats.snapshot import Snapshot

__all__ = ["IndexView"]


class IndexView:
    """A snapshot with its searchers, from queries to hits; safe to use from several threads."""

    def __init__(self, directory: Directory, options: OpenOptions) -> None:
        self.snapshot = Snapshot(directory)
        self._segments = self.snapshot.segments  # what is being searched stays, even if the snapshot is closed
        self._dense = Searcher(self.snapshot, options)
        self._lexical = LexicalSearcher(self.snapshot)
        self._hybrid = HybridSearcher(self._dense, self._lexical, len(self._segments))

    def search_dense(self, vectors: Vectors, options: SearchOptions) -> list[list[Hit]]:
        """The hits for each of (n, dim) query vectors."""
        check_vectors(vectors)
        answers = self._dense.search(vectors, options)
        return [
            self._hits(answer, vector if options.explain else None, [])
            for vector, answer in zip(vectors, answers, strict=True)
        ]

    def search_lexical(self, texts: list[str], options: SearchOptions) -> list[list[Hit]]:
        """The hits for each query by its words alone."""
        hits = []
        for text in texts:
            terms = self._lexical.terms(text)
            hits.append(self._hits(self._lexical.search(terms, options.k), None, terms if options.explain else []))
        return hits

    def search_hybrid(self, vectors: Vectors, texts: list[str], options: SearchOptions) -> list[list[Hit]]:
        """The hits for each query by its vector and its words."""
        check_vectors(vectors)
        answers = self._hybrid.search(vectors, texts, options)
        return [
            self._hits(answer, vector, self._lexical.terms(text))
            if options.explain
            else self._hits(answer, None, [])
            for vector, text, answer in zip(vectors, texts, answers, strict=True)
        ]

    def _hits(self, answer: list[Found], vector: Vectors | None, terms: list[str]) -> list[Hit]:
        """The hits for documents found, in their order; explained by what is given of the query."""
        hits: dict[int, Hit] = {}
        for number in {each.segment for each in answer}:
            places = [place for place, each in enumerate(answer) if each.segment == number]
            docs = np.array([answer[place].doc for place in places], np.int64)
            reader = self._segments[number].reader
            packed = zip(places, reader.ids.many(docs), reader.documents.packed(docs), strict=True)
            for place, doc_id, document in packed:
                found = answer[place]
                matched = () if vector is None else self._matches(found, document.unpacked(), vector)
                by_term = self._lexical.term_scores(terms, found) if terms else {}
                hits[place] = Hit(doc_id, found.score, document, matched, by_term, found.dense, found.lexical)
        return [hits[place] for place in range(len(answer))]

    def _matches(self, found: Found, stored: StoredDocument, vector: Vectors) -> tuple[Match, ...]:
        scores = self._dense.centroid_scores(vector, found)
        path = self._segments[found.segment].reader.path
        return matches(stored, scores, self.snapshot.manifest.settings.beta, path)
