"""The outline of a text that was read from a file: where its pages or cells begin, and its headings.

It is stored with the document as one short string, ``metadata["file"]["places"]``: numbers in decimal,
separated by
spaces. ``line`` says that the lines of the text are those of the file. ``page 0 1830 210`` says that pages
begin at
the characters 0, 1830 and 2040 of the text: each number is the distance from the page before. Headings follow
a bar,
three numbers each: level, distance from the end of the previous heading, length. ``line|1 0 7 2 40 12`` has two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

__all__ = ["Heading", "Outline"]

_MAX_CHARACTERS = 32 << 10  # of the 64 KiB that the metadata of a document may have
_UNITS = frozenset({"", "line", "page", "cell"})


class Heading(NamedTuple):
    """A heading in a text.

    Attributes:
        level: 1 for the highest.
        start: position of its first character in the text.
        end: position after its last one.
    """

    level: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What divides a text.

    Attributes:
        unit: "line", "page", "cell", or "" when there is nothing to count.
        starts: positions in the text of the pages or cells, ascending; empty for lines, which the text shows.
        headings: ascending, none overlapping another.
    """

    unit: str = ""
    starts: tuple[int, ...] = ()
    headings: tuple[Heading, ...] = ()

    def packed(self) -> str:
        """Return the string that is stored.

        Of a text with so many headings that it would be longer than 32 Ki characters, the deepest levels are left
        out; likewise the starts of so many pages.
        """
        head = " ".join([self.unit, *map(str, _differences(self.starts))])
        if len(head) > _MAX_CHARACTERS:
            head = ""
        for deepest in range(max((heading.level for heading in self.headings), default=0), 0, -1):
            packed = f"{head}|{_packed([each for each in self.headings if each.level <= deepest])}"
            if len(packed) <= _MAX_CHARACTERS:
                return packed
        return head

    @classmethod
    def unpacked(cls, packed: object) -> Self:
        """Read what `packed` returned; anything else, as in metadata of a caller's own, is an empty outline."""
        try:
            return cls._parsed(packed) if isinstance(packed, str) else cls()
        except ValueError:
            return cls()

    @classmethod
    def _parsed(cls, packed: str) -> Self:
        head, _, tail = packed.partition("|")
        unit, *gaps = head.split(" ")
        numbers = list(map(int, tail.split()))
        if unit not in _UNITS or len(numbers) % 3 or min([0, *numbers, *map(int, gaps)]) < 0:
            raise ValueError(packed)
        headings, end = [], 0
        for level, gap, length in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            headings.append(Heading(level, end + gap, end + gap + length))
            end += gap + length
        return cls(unit, tuple(accumulate(map(int, gaps))), tuple(headings))


def _differences(starts: Sequence[int]) -> list[int]:
    return [high - low for low, high in pairwise([0, *starts])]


def _packed(headings: Iterable[Heading]) -> str:
    numbers: list[int] = []
    before = 0
    for level, start, end in headings:
        numbers += [level, start - before, end - start]
        before = end
    return " ".join(map(str, numbers))
