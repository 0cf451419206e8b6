"""What stands for mistyped terms: terms of a dictionary that are close by optimal string alignment distance.

A mistyped term is replaced by the terms within one edit (`quarry.engine.analysis.edits`), or, if it is long and
there are none, within two. Most terms of the dictionary are excluded by their lengths and by the sets of their
characters, which differ in at most two members per edit; the others are compared together
(`quarry.engine.lexical.term_table`).

A query text is corrected too, so that its vector is that of the words that were meant. The dictionary has stems;
the word that stands for a mistyped one is the first of the texts within one edit of it that has the stem.

Words that have synonyms are close terms too, also if no document has them: groups stand for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.auto_analyzer import ALTERNATIVE_SIGN
from quarry.engine.analysis.edits import one_edit
from quarry.engine.analysis.words import is_unspaced
from quarry.engine.lexical.term_table import TermTable
from quarry.formats.arrays import BoolArray, UInt8Array, UInt32Array
from quarry.formats.postings.postings import PostingsReader

__all__ = [
    "CloseTerm",
    "CloseTerms",
    "Expansion",
    "allowed_edits",
    "correct_text",
    "find_close_terms",
    "is_expandable",
    "select_expansions",
]

_MIN_CHARACTERS = 4  # of terms that are replaced, or replace one
_TWO_EDITS = 8  # characters from which on two edits are allowed
_MAX_CHARACTERS = 32
_MAX_TERMS = 3  # that replace one
_WEIGHT = 0.7  # of an expansion by one edit; by two edits its square
_MAX_DICTIONARY = 1 << 20  # terms of a segment; larger dictionaries are not searched
_DOT = "\u0307"  # the mark that a case-folded İ has, without which it is an i


class CloseTerm(NamedTuple):
    """A term of a dictionary that is close to another.

    Attributes:
        name: the term.
        distance: number of edits, 1 or 2.
    """

    name: str
    distance: int


class Expansion(NamedTuple):
    """A term that stands for a mistyped one.

    Attributes:
        name: the term.
        weight: the weight of its score, above 0 and below 1.
    """

    name: str
    weight: float


def is_expandable(term: str) -> bool:
    """Return whether close terms may replace a term: a word of letters, of a script with spaces, not too short.

    Numbers and codes are not: another number is not the same one mistyped.
    """
    letters = term.replace(_DOT, "")
    return _MIN_CHARACTERS <= len(term) <= _MAX_CHARACTERS and letters.isalpha() and not is_unspaced(term)


def allowed_edits(term: str) -> tuple[int, ...]:
    """Return the distances at which close terms are searched, one after the other until there are some.

    Of a group it is those of its longest term.
    """
    longest = max(term.split(ALTERNATIVE_SIGN), key=len)
    if not is_expandable(longest):
        return ()
    return (1, 2) if len(longest) >= _TWO_EDITS else (1,)


def select_expansions(close: Iterable[CloseTerm], frequencies: Mapping[str, int]) -> tuple[Expansion, ...]:
    """Return the likeliest of some close terms: those of the smallest distance, the most frequent first.

    Their weights decrease with the square root of their frequencies, relative to the most frequent one, because a
    mistyped word is more likely a frequent one, while a rare term would have a high score.

    Args:
        close: all terms of the collection that are close to one term.
        frequencies: number of documents with each of them; those without documents are left out.
    """
    farthest_first = sorted(close, key=lambda each: -each.distance)  # groups of synonyms have several distances
    known = {each.name: each.distance for each in farthest_first if frequencies.get(each.name)}
    if not known:
        return ()
    least = min(known.values())
    best = sorted((-frequencies[name], name) for name, distance in known.items() if distance == least)
    largest = -best[0][0]
    return tuple(
        Expansion(name, _WEIGHT**least * (-frequency / largest) ** 0.5) for frequency, name in best[:_MAX_TERMS]
    )


def find_close_terms(
    readers: Iterable[PostingsReader], term: str, n_edits: int, edited_stems: Callable[[str], Iterable[str]]
) -> set[CloseTerm]:
    """Return the close terms of the dictionaries of all segments, which are read when they are first searched.

    A mistyped word may have another stem than the word that was meant ("treaty", "tretay"), so the stems of the
    texts within one edit of the term count as close too.

    Args:
        readers: the readers of the segments.
        term: the mistyped term, or a group of them.
        n_edits: the largest distance.
        edited_stems: returns the stems of the texts within one edit of a term, except those that are such texts
            themselves, which may be left out.
    """
    terms = term.split(ALTERNATIVE_SIGN)
    stems = (stem for each in terms for stem in edited_stems(each)) if n_edits == 1 else ()
    related = [each for each in stems if each not in terms]
    close: set[CloseTerm] = set()
    for reader in readers:
        with _lock:
            known = _known.get(reader)
            if known is None:
                known = _known[reader] = CloseTerms(reader)
        close.update(each for name in terms for each in known.find(name, n_edits))
        close.update(CloseTerm(name, 1) for name in known.select_known(related) if is_expandable(name))
    return close


class CloseTerms:
    """Finds close terms in the dictionary of one segment; thread-safe.

    Takes 8 bytes of memory for a term, and its characters: one byte each if all are ASCII, otherwise four.

    Args:
        reader: the segment's postings; its dictionary is read once.

    Raises:
        FormatError: the dictionary is damaged.
    """

    def __init__(self, reader: PostingsReader) -> None:
        narrow, wide = [], []
        for rows in () if reader.n_terms > _MAX_DICTIONARY else reader.term_rows():
            candidates = rows[_is_candidate(rows)]
            is_wide = (candidates[:, :-1] >= 0x80).any(axis=1)
            narrow.append(candidates[~is_wide])
            wide.append(_decode(candidates[is_wide]))
        lengths = range(_MIN_CHARACTERS, _MAX_CHARACTERS + 1)
        self._tables = [
            TermTable([(rows[:, :-1], rows[:, -1]) for rows in narrow], lengths, np.dtype(np.uint8)),
            TermTable([(rows, np.count_nonzero(rows, axis=1)) for rows in wide], lengths, np.dtype(np.uint32)),
        ]

    def select_known(self, names: Iterable[str]) -> list[str]:
        """Return those of some names that are terms of the dictionary."""
        narrow: list[str] = []
        wide: list[str] = []
        for name in names:
            (narrow if name.isascii() else wide).append(name)
        return self._tables[0].select_known(narrow) + self._tables[1].select_known(wide)

    def find(self, term: str, n_edits: int) -> list[CloseTerm]:
        """Return the terms within a distance of a term, except itself.

        Args:
            term: the term, of at most 64 characters.
            n_edits: the largest distance, 1 or 2.
        """
        codes = [ord(character) for character in term]
        close = (each for table in self._tables for each in table.find(codes, n_edits))
        return [CloseTerm(name, distance) for name, distance in close if is_expandable(name)]


_known: WeakKeyDictionary[PostingsReader, CloseTerms] = WeakKeyDictionary()  # segments outlive generations
_lock = threading.Lock()


def _is_candidate(rows: UInt8Array) -> BoolArray:
    """Return which terms have a length that matters and no ASCII digit."""
    text = rows[:, :-1]
    has_digit = ((text >= ord("0")) & (text <= ord("9"))).any(axis=1)
    is_candidate: BoolArray = ~has_digit & (rows[:, -1] >= _MIN_CHARACTERS)
    return is_candidate


def _decode(rows: UInt8Array) -> UInt32Array:
    """Return the characters of terms: (n, width) uint32 code points, filled with zeros."""
    strings = np.ascontiguousarray(rows[:, :-1]).view(f"S{rows.shape[1] - 1}").reshape(-1)
    decoded = np.char.decode(strings, "utf-8", "replace")
    return decoded.view(np.uint32).reshape(len(rows), decoded.dtype.itemsize // 4)


def correct_text(text: str, expansions: Mapping[str, Sequence[Expansion]], analyzer: Analyzer) -> str:
    """Return a text with its mistyped words corrected; a word without a correction stays as it is.

    Args:
        text: the text of the query.
        expansions: maps each mistyped term to the terms that replace it, the likeliest first.
        analyzer: the analyzer of the index.
    """
    parts: list[str] = []
    at = 0
    for start, end, terms in analyzer.located_terms(text):
        expansion = expansions.get(ALTERNATIVE_SIGN.join(terms))
        term = expansion[0].name.partition(ALTERNATIVE_SIGN)[0] if expansion else ""
        word = _find_word(text[start:end].lower(), term, analyzer) if term else None
        if word is not None:
            parts += [text[at:start], word]
            at = end
    return "".join([*parts, text[at:]])


def _find_word(mistyped: str, term: str, analyzer: Analyzer) -> str | None:
    """Return an ASCII word that has a term and is within one edit of a mistyped word; None if there is none."""
    words = list(dict.fromkeys(one_edit(mistyped)))
    several = (zip(words, each.stems(words), strict=True) for each in analyzer.members)
    return next((word for pairs in several for word, stem in pairs if stem == term), None)
