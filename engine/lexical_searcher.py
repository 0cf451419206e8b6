"""Lexical search over a snapshot: BM25 over the postings of its segments."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.analysis import Analyzer
from engine.bm25 import Bm25
from engine.ranking import Ranking
from formats.snapshot import Snapshot

__all__ = ["LexicalSearcher"]


class LexicalSearcher:
    """Ranks documents by their terms; safe to use from several threads.

    A query without terms (stop words only, say) finds nothing.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._segments = snapshot.segments
        self._settings = snapshot.manifest.settings

    def terms(self, text: str) -> list[str]:
        """The terms of a query."""
        return self._analyzer.terms(text)

    def search(self, terms: list[str], n: int) -> Ranking:
        """The n best documents that have a term of the query."""
        ranking = self._bm25.top(terms, n)
        return ranking._replace(lexical=ranking.scores)

    def scores(self, terms: list[str], segment: int, docs: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """BM25 of documents of one segment: (n,) float32, 0 where no term of the query is in them."""
        return self._bm25.score_documents(terms, segment, docs)

    def term_scores(self, terms: list[str], segment: int, doc: int) -> dict[str, float]:
        """What each term of the query adds to a document's score; terms that it lacks are left out."""
        return self._bm25.term_scores(terms, segment, doc)

    @cached_property
    def _analyzer(self) -> Analyzer:
        return Analyzer.from_settings(
            {"language": self._settings.language, "rules": self._settings.analysis_rules}
        )

    @cached_property
    def _bm25(self) -> Bm25:
        readers = [segment.reader.postings for segment in self._segments]
        deleted = [segment.deleted for segment in self._segments]
        return Bm25(readers, deleted, self._settings.k1, self._settings.b)
