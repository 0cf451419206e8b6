"""Positions of words: where each raw word begins and ends in a text as it was given.

Words are found in the text's normal form NFKC, which may be longer or shorter than the text. Every character of
the normal form comes from a group of characters of the text: a character and the marks after it, at most 30.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from itertools import chain, pairwise, repeat
from typing import NamedTuple

from quarry.engine.analysis.words import VOICED_MARKS, find_cuts, find_words, normalize_text

__all__ = ["WordPosition", "locate_words"]

_JAMO = ("\u1160", "\u11ff")  # vowels and final consonants, which it joins to the Hangul letter before them
_BLOCK = re.compile(
    r".{1,500}[^ \n]*", re.DOTALL
)  # a space or line feed at its beginning combines with nothing before


class WordPosition(NamedTuple):
    """A raw word of a text.

    Attributes:
        word: in the normal form of the text.
        starts: for each of its characters the position in the text as given.
        end: position in the text after its last character.
    """

    word: str
    starts: Sequence[int]
    end: int

    def bigram_span(self, place: int) -> tuple[int, int]:
        """Return where the bigram that begins at a character is in the text as given: whole letters with marks."""
        starts, following = self.starts, min(place + 2, len(self.starts))
        while place > 0 and _joins_the_last(self.word[place]):
            place -= 1
        while following < len(starts) and _joins_the_last(self.word[following]):
            following += 1
        if following < len(starts) and starts[following - 1] == starts[following]:
            following = bisect_right(starts, starts[following - 1], lo=following)
        return starts[place], starts[following] if following < len(starts) else self.end


def locate_words(text: str, wanted: Set[str] | None = None) -> Iterator[WordPosition]:
    """Yield the raw words of a text, as `quarry.engine.analysis.words.split_words` finds them, with positions.

    Args:
        text: the text.
        wanted: raw words; others are left out. None: all are yielded. Parts of the text that have none of them are
            passed over.
    """
    for block in _BLOCK.finditer(text):
        part, first = block[0], block.start()
        normal = normalize_text(part)
        if wanted is not None and not any(map(normal.__contains__, wanted)):
            continue
        matches = (match for match in find_words(normal) if wanted is None or match[0] in wanted)
        if normal is part:
            for match in matches:
                low, high = match.span()
                yield WordPosition(match[0], range(first + low, first + high), first + high)
            continue
        starts, ends = _origins(part, first)
        for match in matches:
            low, high = match.span()
            yield WordPosition(match[0], starts[low:high], ends[high - 1])


def _origins(block: str, first: int) -> tuple[list[int], list[int]]:
    """Return for each character of a block's normal form the bounds, in the text, of the group it comes from.

    Most of a text that is not normalized is: characters that normalization keeps are passed over together.
    """
    starts: list[int] = []
    ends: list[int] = []
    low = 0
    for start, end in chain(_find_groups(block), [(len(block), len(block))]):
        n_characters = len(unicodedata.normalize("NFKC", block[start:end]))
        starts += chain(range(first + low, first + start), repeat(first + start, n_characters))
        ends += chain(range(first + low + 1, first + start + 1), repeat(first + end, n_characters))
        low = end
    return starts, ends


def _find_groups(block: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of groups that normalization may change; see `find_cuts` for the limit of their lengths."""
    groups = _changing_groups(block)
    for low, high in pairwise([0, *find_cuts(block), len(block)]):
        yield from (group.span() for group in groups.finditer(block, low, high))


def _changing_groups(text: str) -> re.Pattern[str]:
    """Return a pattern of the groups of a text that have several characters, or one that normalization changes."""
    characters = sorted(set(text))
    joined = re.escape("".join(filter(_joins_the_last, characters)))
    changed = re.escape("".join(each for each in characters if unicodedata.normalize("NFKC", each) != each))
    patterns = [f".[{joined}]+"] * bool(joined) + [f"[{changed}]"] * bool(changed)
    return re.compile("|".join(patterns), re.DOTALL)


def _joins_the_last(character: str) -> bool:
    """Return whether normalization may combine a character with the one before it."""
    if character.isascii():
        return False
    is_jamo = _JAMO[0] <= character <= _JAMO[1]
    return is_jamo or character in VOICED_MARKS or unicodedata.category(character)[0] == "M"
