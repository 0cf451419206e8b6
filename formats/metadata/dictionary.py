"""The ordered distinct values of one column, and the codes of those that satisfy a comparison."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from quarry.formats.arrays import Float64Array, Int64Array
from quarry.formats.metadata.values import LONG_PREFIX_BYTES, MAX_TEXT_BYTES, Kind, Scalar

__all__ = ["Codes", "ColumnDictionary", "Run"]

_SHORTEST_PREFIX = LONG_PREFIX_BYTES - 3  # a character has 4 bytes at most
_INT64_FLOATS = -(2.0**63), 2.0**63 - 1024  # the least and the largest float that is a signed 64-bit integer
_STRICT = {"lte": "lt", "gte": "gt"}

Run = tuple[int, int]  # codes: the first, and one past the last


class Codes(NamedTuple):
    """Values of a column by their codes.

    Attributes:
        certain: values that satisfy the comparison.
        possible: prefixes of long texts, some of which may satisfy it.
    """

    certain: tuple[Run, ...] = ()
    possible: tuple[Run, ...] = ()

    def __and__(self, other: Codes) -> Codes:
        """Return the values of both."""
        both = _intersect(self.certain + self.possible, other.certain + other.possible)
        return Codes(_intersect(self.certain, other.certain), both if self.possible or other.possible else ())


class _Texts(Protocol):
    def __getitem__(self, number: int, /) -> bytes: ...

    def __len__(self) -> int: ...

    def containing(self, part: bytes, low: int, high: int) -> list[int]: ...


class ColumnDictionary:
    """Assigns codes to values: from 1, ordered by kind, then by value.

    Args:
        counts: number of values of each kind, by kind.
        integers: numbers that are signed 64-bit integers, ascending.
        floats: all other numbers, ascending.
        texts: the UTF-8 of the texts, ascending, and then the prefixes of the long ones, ascending.
    """

    def __init__(
        self, counts: Sequence[int], integers: Sequence[int], floats: Sequence[float], texts: _Texts
    ) -> None:
        self.runs: list[Run] = list(pairwise(accumulate(counts, initial=1)))
        self._integers = integers
        self._floats = floats
        self._texts = texts
        self._n_texts = counts[Kind.TEXT]

    @property
    def everything(self) -> Run:
        """The run of all codes."""
        return 1, self.runs[-1][1]

    def value(self, code: int) -> tuple[Kind, int | float | bytes]:
        """Return the kind and the value of a code."""
        kind = Kind(next(number for number, (_, end) in enumerate(self.runs) if code < end))
        place = code - self.runs[kind][0]
        if kind is Kind.INTEGER:
            return kind, self._integers[place]
        if kind is Kind.FLOAT:
            return kind, self._floats[place]
        if kind in (Kind.TEXT, Kind.LONG_TEXT):
            return kind, self._texts[code - self.runs[Kind.TEXT][0]]
        return kind, 0

    def ordered_codes(self) -> Int64Array:
        """Return the codes of bools, numbers and texts, each ascending by value: (n,) int64.

        Of long texts only the beginning is known, so they come last.
        """
        integers, floats = np.asarray(self._integers, np.int64), np.asarray(self._floats, np.float64)
        # a float lies behind the integers up to its floor, if there are any of its size
        floors = np.floor(np.clip(floats, *_INT64_FLOATS)).astype(np.int64)
        n_before = np.searchsorted(integers, floors, "right")
        n_before[floats >= -_INT64_FLOATS[0]] = len(integers)
        n_before[floats < _INT64_FLOATS[0]] = 0
        runs = [np.arange(*run, dtype=np.int64) for run in self.runs]
        numbers = np.insert(runs[Kind.INTEGER], n_before, runs[Kind.FLOAT])
        return np.concatenate([*runs[Kind.FALSE : Kind.INTEGER], numbers, *runs[Kind.TEXT :]])

    def numbers(self, codes: Int64Array) -> Float64Array:
        """Return the numbers with (n,) codes as floats."""
        both = np.concatenate([np.asarray(self._integers, np.float64), np.asarray(self._floats, np.float64)])
        return both[codes - self.runs[Kind.INTEGER][0]]

    def compare(self, operator: str, operand: Scalar) -> Codes:
        """Return the codes of the values v that satisfy `v operator operand`.

        Args:
            operator: "eq", "lt", "lte", "gt", "gte", "contains" or "prefix".
            operand: a text for the last two; a number or a text, unless the operator is "eq".
        """
        if isinstance(operand.payload, str):
            text = operand.payload.encode()
            if operator == "contains":
                return self._contain(text)
            if operator == "prefix":
                return self._begin_with(text)
            long, possible = self._compare_long_texts(operator, text)
            return Codes(_drop_empty(self._compare_short_texts(operator, text), long), _drop_empty(possible))
        if operand.kind in (Kind.INTEGER, Kind.FLOAT):
            runs = (
                self._compare_numbers(operator, self.runs[Kind.INTEGER], self._integers, operand.payload),
                self._compare_numbers(operator, self.runs[Kind.FLOAT], self._floats, operand.payload),
            )
            return Codes(_drop_empty(*runs))
        return Codes(_drop_empty(self.runs[operand.kind]))

    def find_texts(self, test: Callable[[str], object]) -> Codes:
        """Return the texts for which a test holds; of a long text only the beginning is known."""
        first, end = self.runs[Kind.TEXT]
        numbers = (number for number in range(end - first) if test(self._texts[number].decode()))
        return Codes(
            tuple(_join_codes([first + each for each in numbers])), _drop_empty(self.runs[Kind.LONG_TEXT])
        )

    def _contain(self, part: bytes) -> Codes:
        """Return the texts that contain a part; of a long text only the beginning is known."""
        first, end = self.runs[Kind.TEXT][0], self.runs[Kind.LONG_TEXT][1]
        numbers = [first + number for number in self._texts.containing(part, 0, end - first)]
        return Codes(tuple(_join_codes(numbers)), _drop_empty(self.runs[Kind.LONG_TEXT]))

    def _begin_with(self, prefix: bytes) -> Codes:
        """Return the texts with a prefix; long ones whose stored part is shorter than the prefix may have it."""
        first, (low, high) = self.runs[Kind.TEXT][0], self.runs[Kind.LONG_TEXT]
        after = prefix + b"\xff"  # which no UTF-8 contains
        short, long = (
            (first + bisect_left(self._texts, prefix, *span), first + bisect_left(self._texts, after, *span))
            for span in ((0, self._n_texts), (low - first, high - first))
        )
        if len(prefix) <= _SHORTEST_PREFIX:
            return Codes(_drop_empty(short, long))
        return Codes(_drop_empty(short, long), _drop_empty(self._compare_long_texts("gte", prefix)[1]))

    def _compare_numbers(self, operator: str, run: Run, values: Sequence[float], operand: float) -> Run:
        n = run[1] - run[0]
        below, not_above = bisect_left(values, operand, 0, n), bisect_right(values, operand, 0, n)
        return _select_run(operator, run, run[0] + below, run[0] + not_above)

    def _compare_short_texts(self, operator: str, operand: bytes) -> Run:
        run = self.runs[Kind.TEXT]
        below = bisect_left(self._texts, operand, 0, self._n_texts)
        not_above = bisect_right(self._texts, operand, below, self._n_texts)
        return _select_run(operator, run, run[0] + below, run[0] + not_above)

    def _compare_long_texts(self, operator: str, operand: bytes) -> tuple[Run, Run]:
        """Return the long texts that satisfy the comparison, and those that may: with the operand's prefix."""
        run, first = self.runs[Kind.LONG_TEXT], self.runs[Kind.TEXT][0]
        low, high = run[0] - first, run[1] - first
        below = bisect_left(self._texts, operand[:_SHORTEST_PREFIX], low, high)
        not_above = bisect_right(self._texts, operand[:LONG_PREFIX_BYTES], below, high)
        between = first + below, first + not_above
        if operator == "eq":
            return (0, 0), between if len(operand) > MAX_TEXT_BYTES else (0, 0)
        return _select_run(_STRICT.get(operator, operator), run, *between), between


def _select_run(operator: str, run: Run, below: int, not_above: int) -> Run:
    """Return the codes of a run that satisfy a comparison: less before `below`, greater from `not_above` on."""
    return {
        "eq": (below, not_above),
        "lt": (run[0], below),
        "lte": (run[0], not_above),
        "gt": (not_above, run[1]),
        "gte": (below, run[1]),
    }[operator]


def _join_codes(codes: Sequence[int]) -> Iterator[Run]:
    """Yield the runs of ascending codes."""
    start = 0
    for place, code in enumerate(codes):
        if place + 1 == len(codes) or codes[place + 1] != code + 1:
            yield codes[start], code + 1
            start = place + 1


def _intersect(runs: Sequence[Run], others: Sequence[Run]) -> tuple[Run, ...]:
    return _drop_empty(*((max(one[0], two[0]), min(one[1], two[1])) for one in runs for two in others))


def _drop_empty(*runs: Run) -> tuple[Run, ...]:
    return tuple(run for run in runs if run[0] < run[1])
