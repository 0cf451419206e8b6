"""Terms of a dictionary that are close to a mistyped one, by optimal string alignment distance.

A mistyped term is replaced by the terms within one edit, or, if it is long and there are none, within two. An
edit inserts, deletes or replaces a character, or transposes two adjacent ones (F. Damerau, A technique for
computer detection and correction of spelling errors, 1964). Most terms of the dictionary are excluded by their
lengths and by the sets of their characters, which differ in at most two members per edit; the distances of the
others are computed together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import reduce
from operator import or_
from string import ascii_lowercase
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from quarry.engine.analysis.words import is_unspaced
from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array, UInt64Array
from quarry.formats.postings.postings import PostingsReader

__all__ = [
    "CloseTerm",
    "CloseTerms",
    "Expansion",
    "allowed_edits",
    "find_close_terms",
    "is_expandable",
    "one_edit",
    "select_expansions",
]

_MIN_CHARACTERS = 4
_TWO_EDITS = 8  # characters from which on two edits are allowed
_MAX_CHARACTERS = 32
_MAX_TERMS = 3  # that replace one
_WEIGHT = 0.7  # of an expansion by one edit; by two edits its square
_MAX_DICTIONARY = 1 << 20  # terms of a segment; larger dictionaries are not searched
_DOT = "\u0307"  # the mark that a case-folded İ has, without which it is an i
_MASK = np.uint64(63)


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
        weight: of its score, above 0 and below 1.
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
    """Return the distances at which close terms are searched, one after the other until there are some."""
    if not is_expandable(term):
        return ()
    return (1, 2) if len(term) >= _TWO_EDITS else (1,)


def select_expansions(close: Iterable[CloseTerm], frequencies: Mapping[str, int]) -> tuple[Expansion, ...]:
    """Return the likeliest of some close terms: those of the smallest distance, the most frequent first.

    Their weights decrease with the square root of their frequencies, relative to the most frequent one, because a
    mistyped word is more likely a frequent one, while a rare term would have a high score.

    Args:
        close: all terms of the collection that are close to one term.
        frequencies: number of documents with each of them; those without documents are left out.
    """
    known = {each.name: each.distance for each in close if frequencies.get(each.name)}
    if not known:
        return ()
    least = min(known.values())
    best = sorted((-frequencies[name], name) for name, distance in known.items() if distance == least)
    largest = -best[0][0]
    return tuple(
        Expansion(name, _WEIGHT**least * (-frequency / largest) ** 0.5) for frequency, name in best[:_MAX_TERMS]
    )


def find_close_terms(
    readers: Iterable[PostingsReader], term: str, n_edits: int, stems: Callable[[list[str]], list[str]]
) -> set[CloseTerm]:
    """Return the close terms of the dictionaries of all segments, which are read when they are first searched.

    A mistyped word may have another stem than the word that was meant ("treaty", "tretay"), so the stems of the
    texts within one edit of the term count as close too.

    Args:
        readers: of the segments.
        term: the mistyped term.
        n_edits: the largest distance.
        stems: returns the stem of each of several words.
    """
    edited = list(dict.fromkeys(one_edit(term))) if n_edits == 1 else []
    texts = frozenset(edited)
    related = set(stems(edited)) - texts - {term}  # `find` looks up the texts themselves
    found: set[CloseTerm] = set()
    for reader in readers:
        with _lock:
            known = _known.get(reader)
            if known is None:
                known = _known[reader] = CloseTerms(reader)
        found.update(known.find(term, n_edits, texts))
        found.update(CloseTerm(name, 1) for name in known.select_known(related) if is_expandable(name))
    return found


class CloseTerms:
    """Finds close terms in the dictionary of one segment; thread-safe. Takes about 30 bytes of memory for a term.

    Args:
        reader: the segment's postings; its dictionary is read once.

    Raises:
        FormatError: the dictionary is damaged.
    """

    def __init__(self, reader: PostingsReader) -> None:
        parts = [] if reader.n_terms > _MAX_DICTIONARY else list(reader.term_rows())
        kept = [rows[_is_candidate(rows)] for rows in parts]
        width = max((each.shape[1] for each in kept), default=8)
        joined = [np.pad(each[:, :-1], ((0, 0), (0, width - each.shape[1]))) for each in kept]
        joined.insert(0, np.empty((0, width - 1), np.uint8))
        self._rows: UInt8Array = np.ascontiguousarray(np.concatenate(joined))
        sizes = [each[:, -1] for each in kept]
        self._is_wide: BoolArray = np.any(self._rows >= 0x80, axis=1)
        self._wide = np.flatnonzero(self._is_wide)
        self._sizes: UInt8Array = np.concatenate([np.empty(0, np.uint8), *sizes])
        self._sets = _character_sets(self._rows)

    def select_known(self, names: Iterable[str]) -> list[str]:
        """Return those of some names that are terms of the dictionary."""
        wanted = list(names)
        if not len(self._rows) or not wanted:
            return []
        strings = self._rows.view(f"S{self._rows.shape[1]}").reshape(-1)  # in the order of the dictionary
        encoded = np.array([name.encode() for name in wanted])
        found = strings.take(strings.searchsorted(encoded), mode="clip") == encoded
        return [wanted[place] for place in np.flatnonzero(found).tolist()]

    def find(self, term: str, n_edits: int, edited: Set[str] = frozenset()) -> list[CloseTerm]:
        """Return the terms within a distance of a term, except itself.

        Args:
            term: the term.
            n_edits: the largest distance.
            edited: what `one_edit` yields for the term, if the distance is 1: terms of ASCII are looked up in it,
                and their distances are not computed. Empty: it is not known.
        """
        encoded = term.encode()
        bytes_each = max(len(character.encode()) for character in term)
        own = np.uint64(reduce(or_, (1 << (byte & 63) for byte in encoded)))
        rows = self._wide if edited else slice(None)  # terms of ASCII are looked up
        is_wide, sizes, sets = self._is_wide[rows], self._sizes[rows], self._sets[rows]
        slack = np.where(is_wide, n_edits * max(2, bytes_each), n_edits * bytes_each)
        near: BoolArray = (np.bitwise_count(sets ^ own) <= 2 * slack) & (
            np.abs(sizes.astype(np.int16) - len(encoded)) <= slack
        )
        places = self._wide[near] if edited else np.flatnonzero(near)
        names = [
            self._rows[place, : self._sizes[place]].tobytes().decode("utf-8", "replace")
            for place in places.tolist()
        ]
        known = self.select_known(edited - {term})
        found = [CloseTerm(name, 1) for name in known if is_expandable(name)]
        distances: list[int] = _distances(term, names, n_edits).tolist() if names else []
        return found + [
            CloseTerm(name, distance)
            for name, distance in zip(names, distances, strict=True)
            if 1 <= distance <= n_edits and is_expandable(name)
        ]


def one_edit(word: str) -> Iterator[str]:
    """Yield the words within one edit of an ASCII word: transpositions, deletions, insertions, replacements.

    None for another word, because its alphabet is not known. (P. Norvig, How to write a spelling corrector, 2007.)
    """
    if not word.isascii():
        return
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    yield from (head + tail[1] + tail[0] + tail[2:] for head, tail in splits if len(tail) > 1)
    yield from (head + tail[1:] for head, tail in splits if tail)
    yield from (head + letter + tail for head, tail in splits for letter in ascii_lowercase)
    yield from (head + letter + tail[1:] for head, tail in splits if tail for letter in ascii_lowercase)


_known: WeakKeyDictionary[PostingsReader, CloseTerms] = WeakKeyDictionary()  # segments outlive generations
_lock = threading.Lock()


def _is_candidate(rows: UInt8Array) -> BoolArray:
    """Return which terms have a length that matters and no ASCII digit."""
    text = rows[:, :-1]
    has_digit = ((text >= ord("0")) & (text <= ord("9"))).any(axis=1)
    found: BoolArray = ~has_digit & (rows[:, -1] >= _MIN_CHARACTERS - 2)
    return found


def _character_sets(rows: UInt8Array) -> UInt64Array:
    """Return the set of the bytes of each row, modulo 64, as bits; zeros, which fill the rows, are in no set."""
    found = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        found |= np.where(column > 0, np.uint64(1) << (column.astype(np.uint64) & _MASK), np.uint64(0))
    return found


def _distances(term: str, names: Sequence[str], most: int) -> Int64Array:
    """Return the optimal string alignment distance of a term to each of some names, (n,) int64; above `most` any.

    The table of the dynamic program is filled for all names at once, one cell near the diagonal after the other.
    """
    width = len(term) + most
    codes = np.zeros((len(names), width), np.int64)
    lengths = np.array([len(name) for name in names], np.int64)
    for number, name in enumerate(names):
        part = name[:width]
        codes[number, : len(part)] = [ord(character) for character in part]
    columns = np.ascontiguousarray(codes.T)
    own = [ord(character) for character in term]
    far = np.full(len(names), most + 1, np.int64)
    above2: list[Int64Array] = []
    above = [np.full(len(names), column, np.int64) for column in range(width + 1)]
    for row in range(1, len(own) + 1):
        current = [np.full(len(names), row, np.int64) if row <= most else far] + [far] * width
        for column in range(max(1, row - most), min(width, row + most) + 1):
            differs = columns[column - 1] != own[row - 1]
            best = np.minimum(above[column - 1] + differs, np.minimum(above[column], current[column - 1]) + 1)
            if row > 1 and column > 1:
                swapped = (columns[column - 1] == own[row - 2]) & (columns[column - 2] == own[row - 1])
                best = np.where(swapped, np.minimum(best, above2[column - 2] + 1), best)
            current[column] = best
        above2, above = above, current
    table = np.stack(above, axis=1)
    found: Int64Array = np.where(
        lengths <= width, table[np.arange(len(names)), np.minimum(lengths, width)], most + 1
    )
    return found
