"""The words of a query, to find where a text has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quarry.engine.analysis.analyzer import cached_analyzer
from quarry.engine.analysis.phrases import open_phrase
from quarry.engine.analysis.words import is_unspaced, normalize_text
from quarry.engine.json_mapping import JsonRecord
from quarry.engine.lexical.prefixes import PREFIX_SIGN, WordPrefixes

__all__ = ["MatchedWord", "QueryWords"]


@dataclass(frozen=True, slots=True)
class MatchedWord(JsonRecord):
    """A word of a text that a term of the query matches.

    Attributes:
        start: position of its first character.
        end: position after its last one.
        terms: the terms of the query that it has.
    """

    start: int
    end: int
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The terms of a query with their weights, and the rules by which texts are analyzed; can be pickled.

    Attributes:
        weights: weight of each term, above 0.
        language: of the index.
        rules: version of the rules of the analysis.
        quoted: the terms that are words of phrases only; words have them only inside of a phrase.
        phrases: texts of the phrases.
    """

    weights: Mapping[str, float] = field(hash=False)
    language: str
    rules: int
    quoted: frozenset[str] = frozenset()
    phrases: tuple[str, ...] = ()

    def find(self, text: str) -> tuple[MatchedWord, ...]:
        """Return the words of a text that have a term of the query, in order; overlapping ones are joined."""
        found: list[MatchedWord] = []
        if not self.weights:
            return ()
        analyzer = cached_analyzer(self.language, self.rules)
        places = self._find_phrases(text)
        prefixes = [term for term in self.weights if term.endswith(PREFIX_SIGN)]
        begun_by = WordPrefixes([term.removesuffix(PREFIX_SIGN) for term in prefixes], analyzer)
        wanted = None if prefixes else self.weights.keys()
        for start, end, terms in analyzer.located_terms(text, wanted):
            own = tuple(term for term in terms if term in self.weights)
            if own and self.quoted and not any(low <= start and end <= high for low, high in places):
                own = tuple(term for term in own if term not in self.quoted)
            begun = tuple(each + PREFIX_SIGN for each in begun_by[text[start:end]]) if prefixes else ()
            characters = [] if own else _find_characters(text, start, end, begun)
            for character in characters:
                _append(found, character)
            if (own or begun) and not characters:
                _append(found, MatchedWord(start, end, own + begun))
        return tuple(found)

    def _find_phrases(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) characters of the places where a text has one of the phrases."""
        phrases = (open_phrase(phrase, self.language, self.rules) for phrase in self.phrases)
        return [place for phrase in phrases for place in phrase.find(text)]

    def share(self, words: Sequence[MatchedWord]) -> float:
        """Return the share of the query's weight that words of a text have, from 0 to 1."""
        total = sum(self.weights.values())
        return sum(self.weights[term] for term in {term for word in words for term in word.terms}) / (total or 1.0)


def _append(found: list[MatchedWord], word: MatchedWord) -> None:
    """Append a word, or join it to the last one if they overlap."""
    if found and word.start < found[-1].end:
        before = found.pop()
        terms = tuple(dict.fromkeys(before.terms + word.terms))
        word = MatchedWord(min(before.start, word.start), max(before.end, word.end), terms)
    found.append(word)


def _find_characters(text: str, start: int, end: int, prefixes: Sequence[str]) -> list[MatchedWord]:
    """Return the places of the single characters of a script without spaces among some prefixes.

    None if the text writes one of them as several characters.
    """
    if not any(len(prefix) == 2 and is_unspaced(prefix[0]) for prefix in prefixes):
        return []
    characters = enumerate(map(normalize_text, text[start:end]), start)
    return [
        MatchedWord(place, place + 1, (character + PREFIX_SIGN,))
        for place, character in characters
        if character + PREFIX_SIGN in prefixes
    ]
