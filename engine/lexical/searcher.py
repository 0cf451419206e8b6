"""Lexical search over a snapshot: BM25 over the postings of its segments."""

from __future__ import annotations

from functools import cached_property

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.lexical.bm25 import Bm25, Collection
from quarry.engine.lexical.correction import correct_text
from quarry.engine.lexical.query import Bm25Query
from quarry.engine.lexical.query_words import QueryWords
from quarry.formats.snapshot import Snapshot

__all__ = ["LexicalSearcher"]


class LexicalSearcher:
    """Turns texts into BM25 queries; thread-safe.

    A query without terms, for example of stop words only, finds nothing.

    Args:
        snapshot: the generation that is searched.
        cache_bytes: memory for the decoded postings of recently used terms.
        collection: the collection that the snapshot is a part of; None: it is all of it.
    """

    def __init__(self, snapshot: Snapshot, cache_bytes: int, collection: Collection | None = None) -> None:
        self._collection = collection
        self._cache_bytes = cache_bytes
        self._segments = snapshot.segments
        self._settings = snapshot.manifest.settings

    def query(self, text: str, typos: bool = True) -> Bm25Query:
        """Return the query of a text, with the postings of its terms.

        Args:
            text: of the query.
            typos: whether terms that no document has are replaced by close ones.
        """
        return self._bm25.query(self.terms(text), typos)

    def stems(self, words: list[str]) -> list[str]:
        """Return the stem of each of some words, by the rules of the index."""
        return self._analyzer.stems(words)

    def correct(self, text: str) -> str:
        """Return a text with words corrected that no document has; see `quarry.engine.lexical.correction`."""
        expansions = self.query(text).expansions
        return correct_text(text, expansions, self._analyzer) if expansions else text

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text, as analyzed by the rules of the index."""
        return self._analyzer.terms(text)

    def words(self, text: str, query: Bm25Query | None = None) -> QueryWords:
        """Return the words of a text that is searched for, to find them in documents.

        Args:
            text: of the query.
            query: what `query` returned for it; terms are weighted by rarity. None: all terms weigh the same.
        """
        weights = dict.fromkeys(self.terms(text), 1.0) if query is None else query.idf
        return QueryWords(weights, self._settings.language, self._settings.analysis_rules)

    @property
    def resident_bytes(self) -> int:
        """Memory of the cached postings, in bytes."""
        return self._bm25.cached_bytes if "_bm25" in self.__dict__ else 0

    @cached_property
    def _analyzer(self) -> Analyzer:
        return Analyzer.from_settings(self._settings.language, self._settings.analysis_rules)

    @cached_property
    def _bm25(self) -> Bm25:
        readers = [segment.reader.postings for segment in self._segments]
        deleted = [segment.deleted for segment in self._segments]
        settings = self._settings
        return Bm25(
            readers, deleted, settings.k1, settings.b, self._cache_bytes, self._collection, self._analyzer.stems
        )
