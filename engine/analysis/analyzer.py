"""Text to terms, the words that documents and queries are compared by in lexical search."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise

from quarry.engine.analysis.compounds import take_apart
from quarry.engine.analysis.words import is_unspaced, plain, raw_words
from quarry.formats.errors import InvalidSetting

__all__ = ["ENGLISH_STOP_WORDS", "MAX_TERM_BYTES", "Analyzer"]

MAX_TERM_BYTES = 64
RULES = 1  # the version of the rules below and in the two modules above, stored with every index
NO_LANGUAGE = "none"
_FUNCTION_WORDS = """
a an and any are as at be been being but by can could did do does for from had has have he her hers him his how i
if in into is it its me my no nor not of on or our ours she should so some such than that the their theirs them
then there these they this those to was we were what when where which while who whom whose why will with would
you your yours
"""  # a longer list, with prepositions of place and time, was measured to find less
ENGLISH_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
_CONTRACTED = frozenset(["", "d", "ll", "m", "re", "s", "t", "ve"])  # what may follow one behind an apostrophe

_CACHED_WORDS = 1 << 16  # in each of two generations, 15 MB of memory when full
_CACHED_CHARACTERS = 32  # longer words seldom come again

_UNSTEMMED = re.compile(r"[\d+#]")

Terms = tuple[str, ...]


@dataclass(frozen=True)
class Analyzer:
    """Turns a text into terms; safe to use from several threads.

    Words are found in any script (see `quarry.engine.analysis.words`) and folded to one case. Compounds and
    identifiers give their whole and their parts (see `quarry.engine.analysis.compounds`); runs of a script without
    spaces give their pairs of neighbouring characters, a single character itself. A stop word gives nothing.
    A word without digits is reduced to its stem. What is longer than 64 bytes of UTF-8 is cut off there.

    Attributes:
        language: "english", with stop words; another language of the Snowball stemmers, without; or "none",
            which leaves words as they are.

    Raises:
        InvalidSetting: there is no stemmer for the language.
    """

    language: str = "english"
    _expansions: _Expansions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        stops = ENGLISH_STOP_WORDS if self.language == "english" else frozenset[str]()
        object.__setattr__(self, "_expansions", _Expansions(_Words(_stemmer(self.language), stops).terms))

    def terms(self, text: str) -> list[str]:
        """The terms of a text, repeated as often as they occur; a text may have none."""
        return list(chain.from_iterable(map(self._expansions.__getitem__, raw_words(text))))

    def settings(self) -> dict[str, object]:
        """What an index stores, so that its queries are analysed as its documents were."""
        return {"language": self.language, "rules": RULES}

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Analyzer:
        """The analyzer that `settings` describes.

        Raises:
            InvalidSetting: there is no such analyzer here.
        """
        language = settings.get("language")
        if settings.keys() != {"language", "rules"} or type(language) is not str:
            raise InvalidSetting("settings of no analyzer", expected="language and rules", actual=dict(settings))
        if settings["rules"] != RULES:
            raise InvalidSetting("text analysed by other rules", expected=RULES, actual=settings["rules"])
        return cls(language)


class _Words:
    """The rules for one raw word."""

    def __init__(self, stem: Callable[[str], str], stop_words: frozenset[str]) -> None:
        self._stem = stem
        self._stop_words = stop_words

    def terms(self, word: str) -> Terms:
        """The terms of a raw word."""
        word = plain(word)
        if not word.isascii() and is_unspaced(word):
            return tuple(map("".join, pairwise(word))) or (word,)
        if word.isalpha() and (word[1:].islower() or word.isupper()):
            return self._term(word)
        whole, parts = take_apart(word)
        terms = [term for each in (whole, *parts) for term in self._term(each)]
        return tuple(dict.fromkeys(terms))

    def _term(self, word: str) -> Terms:
        """The term of a word that is not taken apart any more, if it has one."""
        folded = _folded(word)
        head, _, tail = folded.partition("'")
        if not folded or (head in self._stop_words and tail in _CONTRACTED):
            return ()
        if folded.isalpha() or not _UNSTEMMED.search(folded):
            folded = self._stem(folded)
        return (_cut(folded),)


def _folded(word: str) -> str:
    """The word in one case; folding can undo the normal form, so it is normalised again."""
    return word.lower() if word.isascii() else unicodedata.normalize("NFKC", word.casefold())


def _cut(term: str) -> str:
    if len(term) * 4 <= MAX_TERM_BYTES:
        return term
    return term.encode()[:MAX_TERM_BYTES].decode(errors="ignore")


class _Expansions(dict[str, Terms]):
    """The terms of raw words, remembered; what two generations did not need again is forgotten."""

    def __init__(self, rule: Callable[[str], Terms]) -> None:
        super().__init__()
        self._rule = rule
        self._older: dict[str, Terms] = {}
        self._lock = threading.Lock()

    def __missing__(self, word: str) -> Terms:
        with self._lock:  # a stemmer serves one thread at a time
            terms = self._older.get(word)
            if terms is None:
                terms = self._rule(word)
            if len(word) <= _CACHED_CHARACTERS:
                if len(self) >= _CACHED_WORDS:
                    self._older = dict(self)
                    self.clear()
                self[word] = terms
        return terms


def _stemmer(language: str) -> Callable[[str], str]:
    if language == NO_LANGUAGE:
        return str
    import Stemmer

    known = Stemmer.algorithms()
    if language not in known:
        expected = f"none or one of {', '.join(known)}"
        raise InvalidSetting("no stemmer for that language", expected=expected, actual=repr(language))
    stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
    return stem
