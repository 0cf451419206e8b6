"""Positions of words: where each raw word begins and ends in a text as it was given.

Words are found in the text's normal form NFKC, which may be longer or shorter than the text. Every character of
the normal form comes from a group of characters of the text: a character and the marks after it, at most 30.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from quarry.engine.analysis.words import VOICED_MARKS, find_cuts, find_words

__all__ = ["WordPosition", "locate_words"]

_JAMO = ("\u1160", "\u11ff")  # vowels and final consonants, which it joins to the Hangul letter before them


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
        """Return where the bigram that begins at a character is in the text as given, in whole groups."""
        starts = self.starts
        if place + 2 < len(starts) and starts[place + 1] < starts[place + 2]:
            return starts[place], starts[place + 2]
        following = bisect_right(starts, starts[min(place + 1, len(starts) - 1)], lo=place)
        return starts[place], starts[following] if following < len(starts) else self.end


def locate_words(text: str, wanted: Set[str] | None = None) -> Iterator[WordPosition]:
    """Yield the raw words of a text, as `quarry.engine.analysis.words.split_words` finds them, with positions.

    Args:
        text: the text.
        wanted: raw words; others are left out. None: all are yielded.
    """
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        for match in find_words(text):
            if wanted is None or match[0] in wanted:
                yield WordPosition(match[0], range(*match.span()), match.end())
        return
    normal, starts, ends = _normalize(text)
    for match in find_words(normal):
        if wanted is None or match[0] in wanted:
            low, high = match.span()
            yield WordPosition(match[0], starts[low:high], ends[high - 1])


def _normalize(text: str) -> tuple[str, list[int], list[int]]:
    """Normalize a text; return for each character of the result the bounds of the group that it comes from."""
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    cuts = set(find_cuts(text))
    start = 0
    for end in range(1, len(text) + 1):
        if end < len(text) and _joins_the_last(text[end]) and end not in cuts:
            continue
        piece = unicodedata.normalize("NFKC", text[start:end])
        pieces.append(piece)
        starts += [start] * len(piece)
        ends += [end] * len(piece)
        start = end
    return "".join(pieces), starts, ends


def _joins_the_last(character: str) -> bool:
    """Return whether normalization may combine a character with the one before it."""
    if character.isascii():
        return False
    is_jamo = _JAMO[0] <= character <= _JAMO[1]
    return is_jamo or character in VOICED_MARKS or unicodedata.category(character)[0] == "M"
