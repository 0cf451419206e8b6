"""Analysis by the language of each text: documents by their own, queries by those of all documents.

The terms of a passage begin with one that names its language (`LANGUAGE_MARK`), so postings say which languages
an index has, whatever is added, merged or deleted. A word of a query has one term for each of them; where they
differ, these are one group, scored as synonyms are: with the postings of all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import log

from quarry.engine.analysis.analyzer import Analyzer, Terms, Words
from quarry.engine.analysis.languages import find_language
from quarry.engine.analysis.words import split_words
from quarry.formats.manifest import AUTO_LANGUAGE, LANGUAGE_MARK, parse_languages

__all__ = ["ALTERNATIVE_SIGN", "AutoAnalyzer", "cached_analyzer", "open_analyzer"]

ALTERNATIVE_SIGN = "|"  # between the terms of a group; no term has one
_CACHED_WORDS = 1 << 14  # of the documents in each language
_CACHED_QUERY_WORDS = 1 << 12  # of the queries in each language


class AutoAnalyzer(Analyzer):
    """The analyzer of an index whose documents have several languages; thread-safe.

    Args:
        name: see `quarry.formats.manifest.IndexSettings.analysis`.
        rules: version of the rules.
    """

    def __init__(self, name: str, rules: int) -> None:
        languages = parse_languages(name) or {"none": 1}
        super().__init__("none", rules, _CACHED_WORDS)
        object.__setattr__(self, "language", name)
        object.__setattr__(self, "_expected", {each: log(n) for each, n in languages.items()})
        object.__setattr__(self, "_grouped", {})
        self._use(_JointWords(tuple(languages), rules))

    _expected: dict[str, float]  # the languages, with the logarithm of the number of passages
    _grouped: dict[tuple[str, ...], Analyzer]  # by the languages whose stop words have no terms

    @property
    def members(self) -> tuple[Analyzer, ...]:
        """The analyzers of its languages, each of one."""
        return tuple(_member(language, self.rules) for language in self._expected)

    def of_query(self, text: str) -> Analyzer:
        """Return what analyzes a query: terms in which languages differ are a group.

        Stop words of the language of the query have no term: in documents of other languages they are rare. A
        single word has one unless it is a stop word of all languages: `war` may be English.
        """
        return self._without_stop_words(find_language(text, self._expected) if len(text.split()) > 1 else "none")

    def stop_terms(self, text: str) -> list[str]:
        """Return the terms of a query that are stop words of one of its languages, and so are not mistyped."""
        analyzer, members = self.of_query(text), self.members
        words = (word for word in split_words(text) if not all(each.terms_of_word(word) for each in members))
        return list(chain.from_iterable(map(analyzer.terms_of_word, words)))

    def title_terms(self, text: str) -> list[str]:
        """Return terms, or groups of them, that all documents with a text have, whatever their language."""
        return self._without_stop_words(*self._expected).terms(text)

    def _without_stop_words(self, *languages: str) -> Analyzer:
        grouped = self._grouped.get(languages)
        if grouped is None:
            grouped = Analyzer("none", self.rules, _CACHED_QUERY_WORDS)
            grouped._use(_JointWords(tuple(self._expected), self.rules, languages))
            self._grouped[languages] = grouped
        return grouped

    def terms(self, text: str) -> list[str]:
        """Return the terms of the text of a query in order, see `of_query`."""
        return self.of_query(text).terms(text)

    def document_terms(self, text: str) -> list[str]:
        """Return what names the language of a text, and its terms by that language; none without a term."""
        language = find_language(text)
        terms = _member(language, self.rules).terms(text)
        return [LANGUAGE_MARK + language, *terms] if terms else []

    def added_terms(self, terms: Sequence[str], text: str) -> list[str]:
        """Return the terms of a text of a document that has terms already, by the language of these."""
        if not terms:
            return self.document_terms(text)
        return _member(terms[0].removeprefix(LANGUAGE_MARK), self.rules).terms(text)

    def edited_stems(self, word: str) -> set[str]:
        """Return the stems of the texts within one edit of a word, in all languages."""
        return set[str]().union(*(member.edited_stems(word) for member in self.members))


class _JointWords(Words):
    """Turns one raw word into the terms of several languages.

    Args:
        languages: the languages.
        rules: version of the rules.
        stopping: languages whose stop words have no term; the others of a word are then joined to a group.
    """

    def __init__(self, languages: Sequence[str], rules: int, stopping: Sequence[str] = ()) -> None:
        super().__init__("none", rules)
        self._several = [Words(language, rules) for language in languages]
        self._stopping = [Words(language, rules) for language in stopping]

    def _is_stop_word(self, folded: str) -> bool:
        return all(words._is_stop_word(folded) for words in self._several)

    def _term(self, word: str) -> Terms:
        if not all(words._term(word) for words in self._stopping):
            return ()
        terms = tuple(sorted({term for words in self._several for term in words._term(word)}))
        return (ALTERNATIVE_SIGN.join(terms),) if terms and self._stopping else terms


@lru_cache(maxsize=64)
def _member(language: str, rules: int) -> Analyzer:
    return Analyzer(language, rules, _CACHED_WORDS)


def open_analyzer(language: str, rules: int) -> Analyzer:
    """Return the analyzer of an index, so that queries are analyzed by the same rules as documents.

    Args:
        language: see `quarry.formats.manifest.IndexSettings.analysis`.
        rules: version of the rules that its documents were analyzed by.

    Raises:
        InvalidSetting: this version of Quarry has other rules, or no stemmer for the language.
    """
    is_auto = isinstance(language, str) and language.partition(":")[0] == AUTO_LANGUAGE
    checked = Analyzer.from_settings("none" if is_auto else language, rules)
    return AutoAnalyzer(language, rules) if is_auto else checked


@lru_cache(maxsize=16)
def cached_analyzer(language: str, rules: int) -> Analyzer:
    """Return the analyzer of an index, see `open_analyzer`; it is kept with its caches."""
    return open_analyzer(language, rules)
