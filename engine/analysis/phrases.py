"""Phrases: words that follow one another in a text, compared as the analyzer compares words.

A stop word has no term, so it is compared by its case-folded form. A compound or an identifier counts as its
parts, one after the other, or as one word: the phrases ``boundary layer`` and ``email address`` are found in texts
with ``boundary-layer`` and ``e-mail address``. Punctuation between words does not count. A run of a script without
spaces is compared by its bigrams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

from quarry.engine.analysis.analyzer import STOP_WORD_MARK, Analyzer, Units
from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.analysis.positions import WordPosition, locate_words
from quarry.engine.analysis.words import is_unspaced, split_words

__all__ = ["PHRASE_SIGN", "Phrase", "open_phrase"]

PHRASE_SIGN = '"'  # at the beginning of the name of a phrase among the terms of a query; no term has one

_MAX_KNOWN_WORDS = 1 << 16  # that are kept in memory


class Phrase:
    """A phrase that is searched for in texts; for one thread at a time.

    Args:
        text: the phrase.
        analyzer: the analyzer of the index. A text has the phrase if it has it in one of the languages.

    Attributes:
        alternatives: sets of terms; every text with the phrase has all terms of one of them. Empty: the phrase has
            no term, because it has no word, or stop words alone.
        is_term: whether it is one word with one term, which every text with the term has.
    """

    def __init__(self, text: str, analyzer: Analyzer) -> None:
        self._readings = [_Reading(text, member) for member in analyzer.members]
        self.alternatives = tuple(dict.fromkeys(chain.from_iterable(each.alternatives for each in self._readings)))
        self.is_term = all(each.is_term for each in self._readings)

    def occurs_in(self, text: str) -> bool:
        """Return whether a text has the phrase."""
        words = split_words(text)
        return any(each.occurs_in(words) for each in self._readings)

    def find(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) characters of the places where a text has the phrase, ascending."""
        words = list(locate_words(text))
        return sorted(set(chain.from_iterable(each.find(words) for each in self._readings)))


class _Reading:
    """A phrase in one language; see `Phrase`."""

    def __init__(self, text: str, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        words = [analyzer.units(word) for word in split_words(text)]
        parts = tuple(unit for word in words for unit in word.parts)
        wholes = tuple(unit for word in words for unit in word.wholes)
        self._has_compounds = parts != wholes
        self._compounds: set[str] = set()  # words of texts whose parts differ from the whole
        self._names = _terms(parts) | _terms(wholes)
        self._has_stop_words = any(name.startswith(STOP_WORD_MARK) for unit in parts for name in unit)
        self._by_parts = _Sequence(parts, self._parts)
        self._by_wholes = _Sequence(wholes, self._wholes)
        alternatives = dict.fromkeys(map(_terms, (parts, wholes)))
        self.alternatives = tuple(alternatives) if all(alternatives) else ()
        self.is_term = len(words) == len(parts) == len(self._names) == 1 and not self._has_stop_words

    def occurs_in(self, words: Sequence[str]) -> bool:
        """Return whether raw words have the phrase."""
        if self._by_parts.occurs_in(words):
            return True
        if not self._has_compounds and self._compounds.isdisjoint(words):
            return False
        return self._by_wholes.occurs_in(words)

    def find(self, words: Sequence[WordPosition]) -> list[tuple[int, int]]:
        """Return the (start, end) characters of the places where raw words have the phrase."""
        return [*self._by_parts.find(words), *self._by_wholes.find(words)]

    def _parts(self, word: str) -> Units:
        if self._is_other(word):
            return ()
        units = self._analyzer.units(word)
        if units.parts != units.wholes:
            self._compounds.add(word)
        return units.parts

    def _wholes(self, word: str) -> Units:
        return () if self._is_other(word) else self._analyzer.units(word).wholes

    def _is_other(self, word: str) -> bool:
        """Return whether no unit of a raw word can be in the phrase, as its terms say, which are remembered.

        A compound may have stop words among its parts.
        """
        terms = () if self._has_stop_words and not word.isalnum() else self._analyzer.terms_of_word(word)
        return bool(terms) and self._names.isdisjoint(terms)


class _Sequence(dict[str, str]):
    """Finds consecutive units among those of a text, by a regular expression over classes of units.

    Units that satisfy the same positions of the sequence are of one class, which is a character. As a dictionary
    it remembers the classes of the units of each raw word.

    Args:
        required: for each position of the sequence what a unit must contain.
        units: returns the units of a raw word of a text; none for a word that is not in the sequence.
    """

    def __init__(self, required: Units, units: Callable[[str], Units]) -> None:
        super().__init__()
        self._required = required
        self._units = units
        self._positions: dict[str, list[int]] = {}  # by a name that is required there
        for position, names in enumerate(required):
            self._positions.setdefault(min(names), []).append(position)
        self._classes: dict[tuple[int, ...], str] = {(): chr(0)}  # by the positions that a unit satisfies
        self._pattern: re.Pattern[str] | None = None
        self._n_compiled = 0

    def occurs_in(self, words: Sequence[str]) -> bool:
        """Return whether raw words have the sequence."""
        text = "".join(map(self.__getitem__, words))
        pattern = self._compiled()
        return pattern is not None and pattern.search(text) is not None

    def find(self, words: Sequence[WordPosition]) -> list[tuple[int, int]]:
        """Return the (start, end) characters of the places where raw words have the sequence."""
        parts = [self[word.word] for word in words]
        pattern = self._compiled()
        if pattern is None:
            return []
        spans = [
            _unit_span(word, place, len(part))
            for word, part in zip(words, parts, strict=True)
            for place in range(len(part))
        ]
        last = len(self._required) - 1
        starts = (match.start() for match in pattern.finditer("".join(parts)))
        return [(spans[start][0], spans[start + last][1]) for start in starts]

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_KNOWN_WORDS:
            self.clear()
        characters = self[word] = "".join(map(self._class, self._units(word))) or self._classes[()]
        return characters

    def _class(self, unit: frozenset[str]) -> str:
        possible = sorted(chain.from_iterable(self._positions.get(name, ()) for name in unit))
        satisfied = tuple(position for position in possible if self._required[position] <= unit)
        return self._classes.setdefault(satisfied, chr(len(self._classes)))

    def _compiled(self) -> re.Pattern[str] | None:
        """Return the expression for the classes so far; None if no unit has been at one of the positions."""
        if self._n_compiled < len(self._classes):
            self._n_compiled = len(self._classes)
            places = [""] * len(self._required)
            for positions, name in self._classes.items():
                for position in positions:
                    places[position] += re.escape(name)
            is_possible = bool(places) and all(places)
            expression = "".join(f"[{place}]" for place in places)
            self._pattern = re.compile(f"(?={expression})") if is_possible else None
        return self._pattern


def _unit_span(word: WordPosition, place: int, n_units: int) -> tuple[int, int]:
    """Return the characters of a unit: those of the whole word, or of one of the bigrams of a run."""
    if n_units == 1 or not is_unspaced(word.word):
        return word.starts[0], word.end
    return word.bigram_span(place)


def _terms(units: Units) -> frozenset[str]:
    return frozenset(name for unit in units for name in unit if not name.startswith(STOP_WORD_MARK))


def open_phrase(text: str, language: str, rules: int) -> Phrase:
    """Return a phrase that is searched for in the texts of an index.

    Args:
        text: the phrase.
        language: the language of the index.
        rules: version of the rules that its documents were analyzed by.

    Raises:
        InvalidSetting: this version of Quarry has other rules, or no stemmer for the language.
    """
    return Phrase(text, cached_analyzer(language, rules))
