"""The analyzer: turns documents and queries into the terms of lexical search."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple

from quarry.engine.analysis.edits import edited_words
from quarry.engine.analysis.positions import locate_words
from quarry.engine.analysis.stop_words import LATER_STOP_WORDS, STOP_WORDS
from quarry.engine.analysis.words import (
    is_unspaced,
    normalize_text,
    normalize_word,
    split_compound,
    split_normal,
)
from quarry.engine.arguments import is_one_of, shown
from quarry.engine.process.libraries import loading
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import AUTO_LANGUAGE

__all__ = [
    "ENGLISH_STOP_WORDS",
    "MAX_TERM_BYTES",
    "STOP_WORD_MARK",
    "Analyzer",
    "LocatedTerms",
    "Units",
    "WordUnits",
    "Words",
    "rules_of",
]

MAX_TERM_BYTES = 64
RULES = 3
"""The newest version of the rules of this package; an index stores the version that it was made with. Version 1
keeps accents, and has stop words of English alone; version 2 has those of Snowball's lists, and version 3 of all
languages with a stemmer."""
NO_LANGUAGE = "none"
_FUNCTION_WORDS = """
a an and any are as at be been being but by can could did do does for from had has have he her hers him his how i
if in into is it its me my no nor not of on or our ours she should so some such than that the their theirs them
then there these they this those to was we were what when where which while who whom whose why will with would
you your yours
"""  # a longer list, with prepositions of place and time, was measured to have a lower nDCG
ENGLISH_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
_CONTRACTED = frozenset(["", "d", "ll", "m", "re", "s", "t", "ve"])  # may follow a stop word after an apostrophe

_NO_ACCENTS = frozenset(["english", "none", "porter"])  # stemmers that know no accents, which are removed before
_ACCENTS = re.compile("(?<=[a-z\u03b1-\u03c9])[\u0300-\u036f]+|(?<=\u0435)\u0308")  # Latin, Greek and ё
_BASE_LETTERS = str.maketrans(dict(zip("ıøłđħŧæœ", ["i", "o", "l", "d", "h", "t", "ae", "oe"], strict=True)))

_CACHED_WORDS = 1 << 16  # in each of the two generations of a cache; 15 MB for words and 8 for pieces when full
_CACHED_UNITS = 1 << 14  # of words; only phrases need them
_CACHED_CHARACTERS = 32  # longer words rarely occur again

STOP_WORD_MARK = "\0"  # before a stop word in a unit, since a term may be spelled like one
_MIN_PREFIX_CHARACTERS = 2  # too many words begin with one
_UNSTEMMED = re.compile(r"[\d+#]")

Terms = tuple[str, ...]
Units = tuple[frozenset[str], ...]
"""What follows one another in a text: for each word, part of a word or bigram its terms, or a marked stop word."""


class LocatedTerms(NamedTuple):
    """The terms of a word of a text, or of two characters of a script without spaces, and where it is.

    Attributes:
        start: position of its first character in the text.
        end: position after its last one.
        terms: its terms, possibly none.
    """

    start: int
    end: int
    terms: Terms


class WordUnits(NamedTuple):
    """The units of a raw word, to compare it with those of a phrase.

    Attributes:
        parts: a unit for each part of a compound.
        wholes: one unit for a compound.
    """

    parts: Units
    wholes: Units


@dataclass(frozen=True)
class Analyzer:
    """Turns a text into terms; thread-safe.

    Words of any script are found (see `quarry.engine.analysis.words`) and case-folded. A compound or an identifier
    yields the whole and its parts (see `quarry.engine.analysis.words`); a run of a script without spaces
    yields its bigrams, or the character itself if it is single. Stop words are removed. A word without digits is
    stemmed. Accents of Latin and Greek letters are removed, after stemming if the stemmer depends on them, so that
    words are found however they are spelled. Terms are truncated to 64 bytes of UTF-8.

    Attributes:
        language: the language of the Snowball stemmers and of the stop words; or "none", without both.
        rules: version of the rules.

    Raises:
        InvalidSetting: there is no stemmer for the language.
    """

    language: str = "english"
    rules: int = RULES
    cached_words: int = field(default=_CACHED_WORDS, repr=False, compare=False)
    _words: Words = field(init=False, repr=False, compare=False)
    _expansions: _Expansions = field(init=False, repr=False, compare=False)
    _pieces: _Cache = field(init=False, repr=False, compare=False)
    _units: dict[str, WordUnits] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._use(Words(self.language, self.rules))

    def _use(self, words: Words) -> None:
        """Analyze words by a rule, with empty caches."""
        object.__setattr__(self, "_words", words)
        object.__setattr__(self, "_expansions", _Expansions(words.terms, self.cached_words, words.stem))
        object.__setattr__(self, "_pieces", _Cache(self._terms_of_piece, self.cached_words))

    @property
    def members(self) -> tuple[Analyzer, ...]:
        """The analyzers of its languages, each of one."""
        return (self,)

    def document_terms(self, text: str) -> list[str]:
        """Return the terms of the text of a document, as `terms` does for a query."""
        return self.terms(text)

    def added_terms(self, terms: Sequence[str], text: str) -> list[str]:
        """Return the terms of a text of a document that has terms already, by the language of these."""
        return self.terms(text)

    def title_terms(self, text: str) -> list[str]:
        """Return terms that all documents with a text have."""
        return self.terms(text)

    def of_query(self, text: str) -> Analyzer:
        """Return what analyzes a query."""
        return self

    def stop_terms(self, text: str) -> list[str]:
        """Return the terms of a query that are stop words of one of its languages, and so are not mistyped."""
        return []

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, repeated as often as they occur; possibly none.

        The terms of each piece between white space are looked up as a whole, which takes a third of the time of
        finding its words first: most pieces are a word, or a word and a punctuation mark.
        """
        return list(chain.from_iterable(map(self._pieces.__getitem__, normalize_text(text).split())))

    def _terms_of_piece(self, piece: str) -> Terms:
        """Return the terms of a piece of a normalized text between white space."""
        words = split_normal(piece)
        if len(words) == 1:
            return self._expansions[words[0]]  # the same tuple, which takes no more memory
        return tuple(chain.from_iterable(map(self._expansions.__getitem__, words)))

    def terms_of_word(self, word: str) -> Terms:
        """Return the terms of a raw word, see `quarry.engine.analysis.words`."""
        return self._expansions[word]

    def stems(self, words: list[str]) -> list[str]:
        """Return the stem of each of some case-folded words of letters."""
        return self._expansions.stems(words)

    def edited_stems(self, word: str) -> set[str]:
        """Return the stems of the texts within one edit of a case-folded word, other than these texts.

        None for a word of other letters than those of ASCII.
        """
        words = edited_words(word, self.language)
        return set(self.stems(words)).difference(words)

    def located_terms(self, text: str, wanted: Set[str] | None = None) -> Iterator[LocatedTerms]:
        """Yield the terms of a text in order, as `terms` returns them, with their positions in the text.

        Args:
            text: the text.
            wanted: terms; words that have none of them are left out, before their positions are computed.
                None: all are yielded.
        """
        words = None
        if wanted is not None:
            pieces = set(normalize_text(text).split())
            found = [piece for piece in pieces if not wanted.isdisjoint(self._pieces[piece])]
            words = {
                word for word in split_normal(" ".join(found)) if not wanted.isdisjoint(self._expansions[word])
            }
            if not words:
                return
        for position in locate_words(text, words):
            word, terms = position.word, self._expansions[position.word]
            if len(terms) > 1 and not word.isascii() and is_unspaced(word):
                for place, term in enumerate(terms):
                    yield LocatedTerms(*position.bigram_span(place), (term,))
            else:
                yield LocatedTerms(position.starts[0], position.end, terms)

    def units(self, word: str) -> WordUnits:
        """Return the units of a raw word, see `quarry.engine.analysis.phrases`."""
        units = self._units.get(word)
        if units is None:
            with self._expansions.lock:
                units = self._words.units(word)
            if len(self._units) >= _CACHED_UNITS:
                self._units.clear()
            self._units[word] = units
        return units

    def prefix(self, word: str) -> str | None:
        """Return a raw word as the beginning of other words; None for a letter, or a run of an unspaced script."""
        return self._words.prefix(word)

    def forms(self, word: str) -> Terms:
        """Return what prefixes are compared with: the terms of a raw word, itself and its parts; no stop words."""
        return self._expansions[word] + self._words.forms(word)

    @classmethod
    def from_settings(cls, language: str, rules: int) -> Analyzer:
        """Return the analyzer of an index of one language; see `quarry.engine.analysis.auto_analyzer`.

        Args:
            language: the language of the index.
            rules: version of the rules that its documents were analyzed by.

        Raises:
            InvalidSetting: this version of Quarry has other rules, or no stemmer for the language.
        """
        if not 1 <= rules <= RULES:
            raise InvalidSetting("text analyzed by other rules", expected=f"1 to {RULES}", actual=rules)
        return cls(language, rules)


def rules_of(language: str) -> int:
    """Return the version of the rules for new indexes of a language: the first with all that is known of it.

    So earlier versions of this package read indexes of languages that did not change.
    """
    return RULES if language == AUTO_LANGUAGE or language in LATER_STOP_WORDS else 2


class Words:
    """Turns one raw word into terms."""

    def __init__(self, language: str, rules: int) -> None:
        self._stem = _make_stemmer(language)
        self._stems_plain = language in _NO_ACCENTS
        self._plain: Callable[[str], str] = str if rules == 1 else _remove_accents
        self._stop_words, self._contracted = _stop_words(language, rules)

    def stem(self, word: str) -> str:
        """Return the term of a case-folded word of letters, whole; the word if its stem is empty."""
        plain = self._plain(word)
        return (self._stem(plain) if self._stems_plain else self._plain(self._stem(word))) or plain

    def terms(self, word: str) -> Terms:
        """Return the terms of a raw word."""
        word = normalize_word(word)
        if not word.isascii() and is_unspaced(word):
            return tuple(map("".join, pairwise(word))) or (word,)
        if word.isalpha() and (word[1:].islower() or word.isupper()):
            return self._term(word)
        if word.isalnum() and (word.islower() or word.isdigit()):  # letters and digits that are not split
            return self._term(word)
        whole, parts = split_compound(word)
        terms = [term for each in (whole, *parts) for term in self._term(each)]
        return tuple(dict.fromkeys(terms))

    def units(self, word: str) -> WordUnits:
        """Return the units of a raw word."""
        word = normalize_word(word)
        if not word.isascii() and is_unspaced(word):
            bigrams = tuple(map("".join, pairwise(word))) or (word,)
            units = tuple(frozenset({each}) for each in bigrams)
            return WordUnits(units, units)
        whole, parts = split_compound(word)
        if word.isalpha() and (word[1:].islower() or word.isupper()):
            whole, parts = word, []
        names = tuple(map(self._name, parts))
        if not whole:
            return WordUnits(names, (frozenset[str]().union(*names),) if names else ())
        own = (self._name(whole),)
        return WordUnits(names if names and whole[-1] not in "+#" else own, own)

    def prefix(self, word: str) -> str | None:
        """Return a raw word without separators, case-folded; None for one that is too short, or a run."""
        word = normalize_word(word)
        if not word.isascii() and is_unspaced(word):
            return word if len(word) == 1 else None
        folded = _truncate(self._plain(_fold(split_compound(word)[0] or word)))
        return folded if len(folded) >= _MIN_PREFIX_CHARACTERS else None

    def forms(self, word: str) -> Terms:
        """Return a raw word and its parts, case-folded, without stop words; none for a run of bigrams."""
        word = normalize_word(word)
        if not word.isascii() and is_unspaced(word):
            return ()
        whole, parts = split_compound(word)
        folded = dict.fromkeys(map(_fold, (whole, *parts)))
        return tuple(self._plain(each) for each in folded if each and not self._is_stop_word(each))

    def _name(self, word: str) -> frozenset[str]:
        """Return the term of a word that is not split any further, or what stands for a stop word in a unit."""
        return frozenset(self._term(word) or {STOP_WORD_MARK + self._plain(_fold(word))})

    def _is_stop_word(self, folded: str) -> bool:
        head, _, tail = folded.partition("'")
        return head in self._stop_words and tail in self._contracted

    def _term(self, word: str) -> Terms:
        """Return the term of a word that is not split any further; none for a stop word."""
        folded = _fold(word)
        if not folded or self._is_stop_word(folded):
            return ()
        if folded.isalpha() or not _UNSTEMMED.search(folded):
            return (_truncate(self.stem(folded)),)
        return (_truncate(self._plain(folded)),)


def _stop_words(language: str, rules: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the stop words of a language, and what may follow one after an apostrophe so that both are one."""
    if language == "english" or (language == "porter" and rules > 1):
        return ENGLISH_STOP_WORDS, _CONTRACTED
    listed = STOP_WORDS.get(language.removesuffix("_porter"), "") if rules > 1 else ""
    if rules > 2 and language in LATER_STOP_WORDS:
        listed = LATER_STOP_WORDS[language]
    words = frozenset(map(_fold, listed.split()))
    if language in LATER_STOP_WORDS:
        words |= {word.replace("\u0131", "i") for word in words}  # as dotless capitals are folded
        words |= frozenset(map(_remove_accents, words))
    return words, words | {""}


def _fold(word: str) -> str:
    """Case-fold a word; folding can undo the normal form, so the result is normalized again."""
    return word.lower() if word.isascii() else normalize_text(word.casefold())


def _remove_accents(folded: str) -> str:
    """Return a case-folded word with base letters for accented Latin and Greek ones, and for ё.

    Marks of other scripts, such as those of Hindi, Thai and kana, are parts of their letters.
    """
    if folded.isascii():
        return folded
    # letters are decomposed one by one, since sorting the marks of a whole word takes quadratic time
    decomposed = "".join(unicodedata.normalize("NFD", each) for each in folded)
    return normalize_text(_ACCENTS.sub("", decomposed.translate(_BASE_LETTERS)))


def _truncate(term: str) -> str:
    if len(term) * 4 <= MAX_TERM_BYTES:
        return term
    return term.encode()[:MAX_TERM_BYTES].decode(errors="ignore")


class _Cache(dict[str, Terms]):
    """A cache of terms by words or pieces of a text, in two generations: what two have not used is evicted."""

    def __init__(self, rule: Callable[[str], Terms], n_words: int) -> None:
        super().__init__()
        self._rule = rule
        self._n_words = n_words
        self._older: dict[str, Terms] = {}
        self.lock = threading.Lock()

    def __missing__(self, text: str) -> Terms:
        with self.lock:  # a stemmer is not thread-safe
            terms = self._older.get(text)
            if terms is None:
                terms = self._rule(text)
            if len(text) <= _CACHED_CHARACTERS:
                if len(self) >= self._n_words:
                    self._older = dict(self)
                    self.clear()
                self[text] = terms
        return terms


class _Expansions(_Cache):
    """The terms of raw words, and the stemmer that they are made with."""

    def __init__(self, rule: Callable[[str], Terms], n_words: int, stem: Callable[[str], str]) -> None:
        super().__init__(rule, n_words)
        self._stem = stem

    def stems(self, words: list[str]) -> list[str]:
        """Return the stem of each of some words, none of which is kept."""
        with self.lock:
            return list(map(self._stem, words))


def _make_stemmer(language: str) -> Callable[[str], str]:
    if is_one_of(language, {NO_LANGUAGE}):
        return str
    with loading("PyStemmer"):
        import Stemmer

    known = Stemmer.algorithms()
    if not is_one_of(language, known):
        expected = f"auto, none or one of {', '.join(known)}"
        raise InvalidSetting("no stemmer for that language", expected=expected, actual=shown(language))
    stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
    return stem
