"""Lexical search over a snapshot: BM25 over the postings of its segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import full_text
from quarry.engine.lexical.bm25 import Bm25, Collection
from quarry.engine.lexical.correction import correct_text
from quarry.engine.lexical.prefixes import PrefixFinder
from quarry.engine.lexical.query import Bm25Query
from quarry.engine.lexical.query_syntax import ParsedQuery, parse_query, parse_words
from quarry.engine.lexical.query_words import QueryWords
from quarry.engine.options import SearchOptions
from quarry.formats.arrays import Int64Array
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.segment import SegmentReader
from quarry.formats.snapshot import Snapshot

__all__ = ["LexicalSearcher"]

_DEFAULT = SearchOptions(operators=True)


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

    def query(self, text: str, options: SearchOptions = _DEFAULT) -> Bm25Query:
        """Return the query of a text, with the postings of its terms.

        Args:
            text: of the query.
            options: how it is read.
        """
        parsed = self.parse(text, options)
        return self.bm25.query(parsed.terms, options.typos, parsed.quoted)

    def parse(self, text: str, options: SearchOptions) -> ParsedQuery:
        """Return the terms of the text of a query."""
        return (parse_query if options.operators else parse_words)(text, self._analyzer)

    def correct(self, text: str, options: SearchOptions) -> str:
        """Return a text with words corrected that no document has; see `quarry.engine.lexical.correction`."""
        expansions = self.query(text, options).expansions
        return correct_text(text, expansions, self._analyzer) if expansions else text

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text, as analyzed by the rules of the index."""
        return self._analyzer.terms(text)

    def words(self, text: str, options: SearchOptions, query: Bm25Query | None = None) -> QueryWords:
        """Return the words of a text that is searched for, to find them in documents.

        Args:
            text: of the query.
            options: how it is read.
            query: what `query` returned for it; terms are weighted by rarity. None: all terms weigh the same, and
                the text has no operators.
        """
        settings = self._settings
        if query is None:
            weights = dict.fromkeys(self.terms(text), 1.0)
            return QueryWords(weights, settings.language, settings.analysis_rules)
        parsed = self.parse(text, options)
        free = {*parsed.free, *query.mistyped}
        quoted = frozenset(parsed.quoted) - free
        return QueryWords(query.idf, settings.language, settings.analysis_rules, quoted, parsed.phrases)

    @property
    def resident_bytes(self) -> int:
        """Memory of the cached postings, in bytes."""
        return self.bm25.cached_bytes if "bm25" in self.__dict__ else 0

    def prefixes(self) -> list[Callable[[str], Postings]]:
        """Return for each segment what finds the live documents with a prefix."""
        return [
            PrefixFinder(
                segment.reader.postings, segment.deleted, partial(_iterate_texts, segment.reader), self._analyzer
            ).find
            for segment in self._segments
        ]

    @cached_property
    def _analyzer(self) -> Analyzer:
        return Analyzer.from_settings(self._settings.language, self._settings.analysis_rules)

    @cached_property
    def bm25(self) -> Bm25:
        """The scores of the snapshot's postings."""
        readers = [segment.reader.postings for segment in self._segments]
        deleted = [segment.deleted for segment in self._segments]
        settings = self._settings
        return Bm25(
            readers,
            deleted,
            settings.k1,
            settings.b,
            self._cache_bytes,
            self._collection,
            self._analyzer.edited_stems,
            self.prefixes(),
        )


def _iterate_texts(reader: SegmentReader, docs: Int64Array) -> Iterator[str]:
    return (full_text(stored.title, stored.text) for stored in reader.documents.read(docs))
