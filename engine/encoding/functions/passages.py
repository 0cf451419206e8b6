"""Passages: texts cut at sentence ends into parts of about equal numbers of words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from quarry.engine.encoding.windows import sentence_end_flags, word_bounds
from quarry.formats.arrays import BoolArray

__all__ = ["Passage", "PreparedPassages", "cut_passages", "is_invisible"]

_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})  # categories of characters that are no text


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document.

    Attributes:
        text: the part.
        start: its first character (code point) in the document.
        end: one past its last character.
    """

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PreparedPassages:
    """The passages of a document, see `quarry.engine.encoding.batch_encoder.PreparedInputs`.

    Attributes:
        passages: in their order; empty for a text without visible characters.
        n_tokens: number of words of the document.
    """

    passages: tuple[Passage, ...]
    n_tokens: int

    @property
    def n_inputs(self) -> int:
        """Number of passages."""
        return len(self.passages)

    def part(self, first: int, stop: int) -> PreparedPassages:
        """Return the same document with only the passages from `first` to before `stop`."""
        return replace(self, passages=self.passages[first:stop])


def cut_passages(text: str, max_words: int) -> PreparedPassages:
    """Cut a text into passages of about equal length, without dropping a word.

    As few passages as possible are planned. Each cut is moved from the ideal place, which divides what remains
    equally, to the nearest sentence end between two thirds of a passage and `max_words`, if there is one.

    Args:
        text: the text.
        max_words: maximum number of words of a passage, at least 1. A word is a run without white space, or three
            characters of a script without spaces (Thai, Lao, kana, Han).
    """
    if is_invisible(text):
        return PreparedPassages((), 0)
    bounds = word_bounds(text)
    if len(bounds) <= max_words:
        start, end = bounds[0][0], bounds[-1][1]
        return PreparedPassages((Passage(text[start:end], start, end),), len(bounds))
    starts, ends = np.ascontiguousarray(np.array(bounds, np.int64).T)
    passages = []
    for first, stop in _passage_bounds(sentence_end_flags(text, starts, ends), max_words):
        start, end = int(starts[first]), int(ends[stop - 1])
        passages.append(Passage(text[start:end], start, end))
    return PreparedPassages(tuple(passages), len(starts))


def is_invisible(text: str) -> bool:
    """Return whether a text has no character but white space, control and format characters."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def _passage_bounds(sentence_ends: BoolArray, max_words: int) -> Iterator[tuple[int, int]]:
    """Yield the (first, stop) words of each passage."""
    n_words, first = len(sentence_ends), 0
    stops = np.flatnonzero(sentence_ends) + 1
    while n_words - first > max_words:
        remaining = n_words - first
        ideal = -(-remaining // -(-remaining // max_words))
        low, high = np.searchsorted(stops, [first + ideal - ideal // 3, first + max_words + 1])
        stop = first + ideal
        if low < high:
            near = stops[low:high]
            stop = int(near[np.abs(near - stop).argmin()])
        yield first, stop
        first = stop
    yield first, n_words
