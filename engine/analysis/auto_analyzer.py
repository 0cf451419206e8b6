"""Analysis by the language of each text: documents by their own, queries by those of all documents.

The terms of a passage begin with one that names its language (`LANGUAGE_MARK`), so postings say which languages
an index has, whatever is added, merged or deleted. A word of a query has one term for each of them; where they
differ, these are one group, scored as synonyms are: with the postings of all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from quarry.engine.analysis.analyzer import Analyzer, Terms, Words
from quarry.engine.analysis.languages import find_language
from quarry.formats.manifest import AUTO_LANGUAGE, LANGUAGE_MARK

__all__ = ["ALTERNATIVE_SIGN", "AutoAnalyzer", "cached_analyzer", "open_analyzer"]

ALTERNATIVE_SIGN = "|"  # between the terms of a group; no term has one
_CACHED_WORDS = 1 << 14  # of each language


class AutoAnalyzer(Analyzer):
    """The analyzer of an index whose documents have several languages; thread-safe.

    Args:
        name: "auto", or with the languages of the documents: "auto:english,german".
        rules: version of the rules.
    """

    def __init__(self, name: str, rules: int) -> None:
        languages = tuple(filter(None, name.partition(":")[2].split(","))) or ("none",)
        super().__init__("none", rules)
        object.__setattr__(self, "language", name)
        object.__setattr__(self, "_languages", languages)
        object.__setattr__(self, "_grouped", {})
        self._use(_JointWords(languages, rules))

    _languages: tuple[str, ...]
    _grouped: dict[str, Analyzer]  # by the language of a query

    @property
    def members(self) -> tuple[Analyzer, ...]:
        """The analyzers of its languages, each of one."""
        return tuple(_member(language, self.rules) for language in self._languages)

    def terms(self, text: str) -> list[str]:
        """Return the terms of the text of a query in order, and groups of those in which languages differ.

        Stop words of the language of the query have none: in documents of other languages they are rare.
        """
        language = find_language(text)
        grouped = self._grouped.get(language)
        if grouped is None:
            grouped = Analyzer("none", self.rules, _CACHED_WORDS)
            grouped._use(_JointWords(self._languages, self.rules, language))
            self._grouped[language] = grouped
        return grouped.terms(text)

    def document_terms(self, text: str) -> list[str]:
        """Return what names the language of a text, and its terms by that language; none without a term."""
        language = find_language(text)
        terms = _member(language, self.rules).terms(text)
        return [LANGUAGE_MARK + language, *terms] if terms else []

    def like(self, terms: Sequence[str]) -> Analyzer:
        """Return the analyzer of the language that the terms of a document are of, see `document_terms`."""
        return _member(terms[0].removeprefix(LANGUAGE_MARK), self.rules) if terms else self

    def edited_stems(self, word: str) -> set[str]:
        """Return the stems of the texts within one edit of a word, in all languages."""
        return set[str]().union(*(member.edited_stems(word) for member in self.members))


class _JointWords(Words):
    """Turns one raw word into the terms of several languages.

    Args:
        languages: the languages.
        rules: version of the rules.
        query: the language of a query, whose different terms of a word are joined to a group; None: they are not.
    """

    def __init__(self, languages: Sequence[str], rules: int, query: str | None = None) -> None:
        super().__init__("none", rules)
        self._several = [Words(language, rules) for language in languages]
        self._query = None if query is None else Words(query, rules)

    def _is_stop_word(self, folded: str) -> bool:
        return all(words._is_stop_word(folded) for words in self._several)

    def _term(self, word: str) -> Terms:
        if self._query is not None and not self._query._term(word):
            return ()
        terms = tuple(sorted({term for words in self._several for term in words._term(word)}))
        return terms if self._query is None or not terms else (ALTERNATIVE_SIGN.join(terms),)


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


@lru_cache(maxsize=64)
def cached_analyzer(language: str, rules: int) -> Analyzer:
    """Return the analyzer of an index, see `open_analyzer`; it is kept with its caches."""
    return open_analyzer(language, rules)
