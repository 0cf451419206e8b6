"""Documents cut into passages, parts that are ranked by themselves: at headings, paragraphs and sentence ends."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from quarry.engine.encoding.windows import sentence_end_flags, word_bounds
from quarry.formats.arrays import Int64Array
from quarry.formats.manifest import PassageRecord

__all__ = ["cut_into_passages"]

_SENTENCE, _LINE, _PARAGRAPH, _HEADING = 1, 2, 3, 4  # how well a text can be cut at a place
_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*\n\s*")
_LINE_BREAK = re.compile(r"[\n\r\u2028\u2029]\s*")
_EARLIEST = {_SENTENCE: 2 / 3, _LINE: 2 / 3, _PARAGRAPH: 1 / 2, _HEADING: 1 / 4}
"""Where the first cut of each kind may be, as a share of a full passage: for a better cut it may be shorter."""


def cut_into_passages(text: str, settings: PassageRecord, headings: Iterable[int] = ()) -> list[tuple[int, int]]:
    """Cut a text into consecutive passages, without dropping a word.

    Passages are as few as possible and about equally long. Each ends before a heading, else at the end of a
    paragraph, a line or a sentence, at the place of the best kind that is nearest to the ideal one; else between
    two words.

    Args:
        text: the text.
        settings: how it is cut.
        headings: positions in the text where headings begin, ascending.

    Returns:
        (start, end) characters of each passage, without white space between passages. The first begins at 0;
        [(0, len(text))] for a text that is one passage.
    """
    if len(text) <= settings.max_words:  # a word has a character at least
        return [(0, len(text))]
    spans = word_bounds(text)
    if len(spans) <= settings.max_words:
        return [(0, len(text))]
    starts, ends = np.ascontiguousarray(np.array(spans, np.int64).T)
    kinds = _kinds_of_cuts(text, starts, ends, headings)
    bounds: list[tuple[int, int]] = []
    first = 0
    while len(starts) - first > settings.max_words:
        stop = _next_cut(kinds, first, settings.max_words)
        bounds.append((int(starts[first]) if first else 0, int(ends[stop - 1])))
        first = max(stop - settings.overlap, (first + stop + 1) // 2)  # half of a short one is new
    bounds.append((int(starts[first]), int(ends[-1])))
    return bounds


def _kinds_of_cuts(text: str, starts: Int64Array, ends: Int64Array, headings: Iterable[int]) -> Int64Array:
    """Return (n_words + 1,) int64: how well the text can be cut before each word, 0 for not at all."""
    kinds = np.zeros(len(starts) + 1, np.int64)
    kinds[1:][sentence_end_flags(text, starts, ends)] = _SENTENCE
    for kind, pattern in ((_LINE, _LINE_BREAK), (_PARAGRAPH, _PARAGRAPH_BREAK)):
        kinds[starts.searchsorted([match.end() for match in pattern.finditer(text)])] = kind
    kinds[starts.searchsorted(np.fromiter(headings, np.int64))] = _HEADING
    return kinds


def _next_cut(kinds: Int64Array, first: int, max_words: int) -> int:
    """Return the word before which the passage that starts at word `first` ends; more than `max_words` remain."""
    remaining = len(kinds) - 1 - first
    ideal = -(-remaining // -(-remaining // max_words))
    for kind in (_HEADING, _PARAGRAPH, _LINE, _SENTENCE):
        low = first + max(1, int(ideal * _EARLIEST[kind]))
        places = low + np.flatnonzero(kinds[low : first + max_words + 1] >= kind)
        if len(places):
            return int(places[np.abs(places - first - ideal).argmin()])
    return first + ideal
