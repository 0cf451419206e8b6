"""Operators in the text of a query: phrases in quotation marks, and prefixes before an asterisk.

* ``"exact phrase"``: a quotation mark (the ASCII one, not the typographic ones) begins a phrase before a word and
  ends it after one. Documents must have the phrase; its words count for the score like others. A quotation mark
  without a counterpart, or after a digit or letter (``a 5" pipe``), is no operator.
* ``prefix*``: an asterisk directly after a word of two characters or more, and before a space, punctuation or the
  end. The prefix is one term of the query. Any other asterisk is no operator, also inside of a phrase.

Characters that are no operator separate words, as in documents. A single character of a script without spaces
between words is a prefix in every query: documents have only the bigrams with it, unless it is alone there too.

Of all prefixes of a query the first 64 different ones count, single characters last: each is a search of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.positions import locate_words
from quarry.engine.analysis.words import is_unspaced

__all__ = ["MAX_PREFIXES", "PREFIX_SIGN", "ParsedQuery", "find_phrases", "parse_query", "parse_words"]

PREFIX_SIGN = "*"  # at the end of the name of a prefix among the terms of a query; no term has one
MAX_PREFIXES = 64
_QUOTED = re.compile(r'(?<!\w)"([^"\w]*+\w[^"]*+)"(?!\w)')


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The terms of a query text.

    Attributes:
        free: the terms outside of phrases, and the prefixes, with `PREFIX_SIGN`; repeated as often as they occur.
        quoted: the terms of phrases.
        phrases: the texts of phrases.
    """

    free: tuple[str, ...]
    quoted: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """All terms."""
        return self.free + self.quoted


def find_phrases(text: str) -> tuple[str, ...]:
    """Return the phrases of a query text."""
    return tuple(_QUOTED.findall(text)) if '"' in text else ()


def parse_query(text: str, analyzer: Analyzer) -> ParsedQuery:
    """Parse a query text."""
    phrases = find_phrases(text)
    if phrases:
        text = _QUOTED.sub(" ", text)
    prefixes, text = _find_prefixes(text, analyzer)
    characters, text = _find_characters(text)
    quoted = tuple(term for phrase in phrases for term in analyzer.terms(phrase))
    return ParsedQuery((*analyzer.terms(text), *_take_first(prefixes + characters)), quoted, phrases)


def parse_words(text: str, analyzer: Analyzer) -> ParsedQuery:
    """Parse a query text without operators."""
    characters, text = _find_characters(text)
    return ParsedQuery((*analyzer.terms(text), *_take_first(characters)))


def _take_first(prefixes: list[str]) -> list[str]:
    """Return the first `MAX_PREFIXES` different prefixes, repeated as often as they occur."""
    kept = set(islice(dict.fromkeys(prefixes), MAX_PREFIXES))
    return [prefix for prefix in prefixes if prefix in kept]


def _find_characters(text: str) -> tuple[list[str], str]:
    """Return the single characters of unspaced scripts as prefixes, and the text with blanks in their places."""
    if text.isascii():
        return [], text
    found: list[str] = []
    rest = list(text)
    for word in locate_words(text):
        if len(word.word) == 1 and is_unspaced(word.word):
            found.append(word.word + PREFIX_SIGN)
            rest[word.starts[0] : word.end] = " " * (word.end - word.starts[0])
    return found, "".join(rest)


def _find_prefixes(text: str, analyzer: Analyzer) -> tuple[list[str], str]:
    """Return the prefixes of a text, and the text with blanks in their places."""
    if PREFIX_SIGN not in text:
        return [], text
    found: list[str] = []
    rest: list[str] = []
    at = 0
    for word in locate_words(text):
        start, end = word.starts[0], word.end
        if text[end : end + 1] != PREFIX_SIGN or text[start - 1 : start] == PREFIX_SIGN:
            continue
        after = text[end + 1 : end + 2]
        prefix = None if after.isalnum() or after in {"_", PREFIX_SIGN} else analyzer.prefix(word.word)
        if prefix is not None:
            found.append(prefix + PREFIX_SIGN)
            rest += [text[at:start], " " * (end + 1 - start)]
            at = end + 1
    return found, "".join([*rest, text[at:]])
