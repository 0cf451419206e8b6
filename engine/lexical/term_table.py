"""Terms by their lengths, to find those within one or two edits of another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quarry.formats.arrays import BoolArray, Int64Array, UInt64Array

__all__ = ["TermTable"]

_MASK = 63  # of the bits that stand for characters
_ONE = np.uint64(1)

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Characters of terms of one length, (n, length), as code points."""


class TermTable:
    """Terms of some lengths, each with the set of its characters; immutable.

    Args:
        parts: (n, width) code points of terms, ascending, filled with zeros, and the length (n,) of each.
        lengths: the lengths of the terms that are kept.
        dtype: the dtype of the code points: uint8 or uint32.
    """

    def __init__(
        self,
        parts: Iterable[tuple[Codes, npt.NDArray[np.integer[Any]]]],
        lengths: range,
        dtype: np.dtype[np.unsignedinteger[Any]],
    ) -> None:
        selected: dict[int, list[Codes]] = {length: [np.empty((0, length), dtype)] for length in lengths}
        for rows, sizes in parts:
            for length in range(lengths.start, min(lengths.stop, rows.shape[1] + 1)):
                selected[length].append(rows[sizes == length, :length])
        groups = [np.concatenate(several) for several in selected.values()]
        self._lengths = lengths
        self._codes: Codes = np.concatenate([group.reshape(-1) for group in groups])
        self._sets: UInt64Array = np.concatenate([_character_sets(group) for group in groups])
        self._starts: list[int] = np.cumsum([0, *map(len, groups)]).tolist()  # first term of each length
        self._offsets: list[int] = np.cumsum([0, *(group.size for group in groups)]).tolist()  # its characters

    def select_known(self, terms: Sequence[str]) -> list[str]:
        """Return those of some terms that the table has."""
        by_length: dict[int, list[str]] = {}
        for term in terms:
            if len(term) in self._lengths:
                by_length.setdefault(len(term), []).append(term)
        known: list[str] = []
        for length, several in by_length.items():
            rows = self._rows(length)
            if len(rows):
                kind = "S" if rows.dtype == np.uint8 else "U"
                strings = rows.view(f"{kind}{length}").reshape(-1)
                own = np.array(several, strings.dtype)
                is_known = strings.take(strings.searchsorted(own), mode="clip") == own
                known += [several[place] for place in np.flatnonzero(is_known).tolist()]
        return known

    def find(self, codes: Sequence[int], n_edits: int) -> Iterator[tuple[str, int]]:
        """Yield the terms within a distance of another, except itself, and their distances.

        Args:
            codes: code points of the other term, at most 64.
            n_edits: the largest distance, 1 or 2.
        """
        first = max(self._lengths.start, len(codes) - n_edits)
        last = min(self._lengths.stop - 1, len(codes) + n_edits)
        if first > last:
            return
        numbers = range(first - self._lengths.start, last + 1 - self._lengths.start)
        start = self._starts[numbers.start]
        own_set = np.uint64(sum({1 << (code & _MASK) for code in codes}))
        sets = self._sets[start : self._starts[numbers.stop]]
        near = (np.bitwise_count(sets ^ own_set) <= 2 * n_edits).nonzero()[0] + start
        if not len(near):
            return
        stops = near.searchsorted(self._starts[numbers.start : numbers.stop + 1]).tolist()
        counts = [high - low for low, high in pairwise(stops)]
        sizes = np.repeat(np.arange(first, last + 1), counts)
        # Where the characters of a term begin, if all terms of its length began at the first one.
        origins = [
            self._offsets[number] - self._starts[number] * (number + self._lengths.start) for number in numbers
        ]
        begins = near * sizes + np.repeat(origins, counts)
        own: Codes = np.array(codes, np.uint32)
        if n_edits == 1:
            is_found = self._differ_by_one_edit(begins, sizes, own)
            distances = is_found.astype(np.int64)
        else:
            distances = _distances(self._read(begins, last), sizes, own)
            is_found = (distances > 0) & (distances <= n_edits)
        columns = (each[is_found].tolist() for each in (begins, sizes, distances))
        for begin, size, distance in zip(*columns, strict=True):
            yield "".join(map(chr, self._codes[begin : begin + size].tolist())), distance

    def _rows(self, length: int) -> Codes:
        """Return the terms of a length, (n, length), ascending."""
        number = length - self._lengths.start
        return self._codes[self._offsets[number] : self._offsets[number + 1]].reshape(-1, length)

    def _read(self, begins: Int64Array, width: int) -> Codes:
        """Return characters from some places on, (n, width); those beyond a term are of its neighbors."""
        return self._codes.take(begins[:, None] + np.arange(width), mode="clip")

    def _differ_by_one_edit(self, begins: Int64Array, sizes: Int64Array, own: Codes) -> BoolArray:
        """Return which terms are one edit away from another, (n,).

        Two terms are, if all but one of the characters are in a common beginning and a common end, or all but two
        that are transposed.

        Args:
            begins: (n,) first character of each term.
            sizes: (n,) its length, which differs by at most one.
            own: (m,) code points of the other term.
        """
        heads = self._read(begins, len(own)) == own
        tails = self._read(begins + sizes - len(own), len(own)) == own
        shorter = np.minimum(sizes, len(own))
        n_first = np.minimum(_count_first(heads), shorter)
        n_last = np.minimum(_count_first(tails[:, ::-1]), shorter)
        n_left = shorter - n_first - n_last
        is_same_length = sizes == len(own)
        is_found = np.where(is_same_length, n_left == 1, n_left <= 0)
        for place in (is_same_length & (n_left == 2)).nonzero()[0].tolist():
            at = int(n_first[place])
            pair = self._codes[begins[place] + at : begins[place] + at + 2]
            is_found[place] = pair[0] == own[at + 1] and pair[1] == own[at]
        return is_found


def _count_first(flags: BoolArray) -> Int64Array:
    """Return how many flags are set before the first one of each row that is not, (n,)."""
    counts: Int64Array = np.where(flags.all(axis=1), flags.shape[1], flags.argmin(axis=1))
    return counts


def _character_sets(rows: Codes) -> UInt64Array:
    """Return the set of the characters of each row, modulo 64, as bits."""
    sets = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        sets |= _ONE << (column & _MASK).astype(np.uint64)
    return sets


def _distances(rows: Codes, sizes: Int64Array, own: Codes) -> Int64Array:
    """Return the optimal string alignment distance of terms to another one of at most 64 characters: (n,).

    All terms are compared at once, one column after the other, by the bits of differences of the table of the
    dynamic program. (H. Hyyrö, A bit-vector algorithm for computing Levenshtein and Damerau edit distances, 2003.)

    Args:
        rows: (n, width) code points; those beyond the end of a term are ignored.
        sizes: (n,) lengths of the terms.
        own: (m,) code points of the other term.
    """
    last = np.uint64(len(own) - 1)
    alphabet, numbers = np.unique(own, return_inverse=True)
    bits = np.zeros(len(alphabet) + 1, np.uint64)  # the last one for other characters
    np.bitwise_or.at(bits, numbers, _ONE << np.arange(len(own), dtype=np.uint64))
    places = np.minimum(alphabet.searchsorted(rows), len(alphabet) - 1)
    places[alphabet[places] != rows] = len(alphabet)
    increases = np.full(len(rows), np.uint64(0xFFFF_FFFF_FFFF_FFFF))
    decreases, diagonal, before = (np.zeros(len(rows), np.uint64) for _ in range(3))
    distance = np.full(len(rows), len(own), np.int64)
    distances = distance.copy()
    for column, match in enumerate(np.ascontiguousarray(bits[places].T), 1):
        swapped = ((~diagonal & match) << _ONE) & before
        diagonal = (((match & increases) + increases) ^ increases) | match | decreases | swapped
        up = decreases | ~(diagonal | increases)
        down = diagonal & increases
        distance += ((up >> last) & _ONE).astype(np.int64)
        distance -= ((down >> last) & _ONE).astype(np.int64)
        distances[sizes == column] = distance[sizes == column]
        up = (up << _ONE) | _ONE
        increases = (down << _ONE) | ~(diagonal | up)
        decreases = up & diagonal
        before = match
    return distances
