"""Windows: tokenized documents cut, at sentence ends when possible, into what an encoder reads at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from quarry.formats.arrays import BoolArray, Int64Array

__all__ = ["WORD", "piece_count", "piece_starts", "sentence_end_flags", "window_bounds", "word_bounds"]

# In scripts without spaces (Thai, Lao, kana, Han) three characters count as a word.
WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]{1,3}|[^\s\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")
"""Words of texts in any script, with the punctuation attached to them."""

_MAX_WORD = 40  # characters; longer runs without white space (encoded data) count as several words


def window_bounds(text: str, starts: Int64Array, ends: Int64Array, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Cut tokens into consecutive windows, without overlap and without dropping any.

    A window ends at the last sentence end in its last quarter, else at the last word boundary there (a gap between
    two tokens), else when it is full. The remaining tokens are the last window.

    Args:
        text: the document's text, which the offsets refer to.
        starts: (n_tokens,) int64, first character of each token, ascending.
        ends: (n_tokens,) int64, one past the last character of each token, ascending.
        max_tokens: most tokens in a window, special tokens not counted; at least 1.

    Yields:
        ``(first, stop)`` token positions of each window; none for a text without tokens.

    Raises:
        ValueError: ``max_tokens`` is below 1.
    """
    if max_tokens < 1:
        msg = f"a window holds at least one token, not {max_tokens}"
        raise ValueError(msg)
    first = 0
    while len(ends) - first > max_tokens:
        stop = _cut(text, starts, ends, first, first + max_tokens)
        yield first, stop
        first = stop
    if first < len(ends):
        yield first, len(ends)


def _cut(text: str, starts: Int64Array, ends: Int64Array, first: int, limit: int) -> int:
    """Return the position in ``(first, limit]`` to cut at; tokens exist beyond ``limit``."""
    quarter = limit - max(1, (limit - first) // 4)
    sentence_ends = np.flatnonzero(sentence_end_flags(text, starts[quarter:limit], ends[quarter:limit]))
    if len(sentence_ends):
        return quarter + 1 + int(sentence_ends[-1])
    gaps = np.flatnonzero(starts[quarter + 1 : limit + 1] > ends[quarter:limit])
    return quarter + 1 + int(gaps[-1]) if len(gaps) else limit


_LINE_BREAKS = "\n\r\u2028\u2029"
_WIDE_STOPS = "\u3002\uff01\uff1f\uff61"  # CJK full stop, wide ! and ?, half-width full stop: no space follows
_STOPS = ".!?\u2026\u061f\u06d4\u0964"  # ... ellipsis, Arabic question mark and full stop, danda
_CLOSERS = r"""["'\u201d\u2019)\]\u00bb\u203a\u300d\u300f\uff09\u3011\u3015\u300b\u3009]*"""

# One leading character class lets the regex engine skip at C speed to the few candidates. A stop counts when
# white space and no lower-case letter follow ("e.g. this" goes on), and not after a lone capital ("J. Doe"). A run
# of stops is tried from its first one that counts alone: its time would grow with the square of its length.
_SENTENCE_END = re.compile(
    rf"[{_LINE_BREAKS}{_WIDE_STOPS}{_STOPS}]"
    rf"(?:(?<=[{_LINE_BREAKS}])"
    rf"|(?<=[{_WIDE_STOPS}])[{_WIDE_STOPS}]*{_CLOSERS}"
    rf"|(?<=[{_STOPS}])(?:(?<![{_STOPS}].)|(?<=\b[A-Z]\..))(?<!\b[A-Z]\.)[{_STOPS}]*{_CLOSERS}(?=\s+[^\sa-z]|\s*\Z))"
)

# Maximum distance of a sentence end from the ideal cut of a piece, as a share of a piece's length. Below one half,
# cuts are always distinct and in order.
_TOLERANCE = 1 / 3

# Characters looked at after the last token, for the brackets and blanks that may follow a stop.
_LOOK_AHEAD = 16


def sentence_end_flags(text: str, starts: Int64Array, ends: Int64Array) -> BoolArray:
    """Return after which tokens a sentence ends.

    A sentence ends at ``. ! ?`` and their equivalents in other scripts, with the quotes and brackets that close
    after them, at a CJK full stop, and at a line break. This is a heuristic for choosing cuts, not a parser: it
    fails after an abbreviation that precedes a capital ("Dr. Who"). Only the part of the text that the tokens
    cover is read, so the cost of all windows together is linear.

    Args:
        text: the text that the offsets refer to.
        starts: (n_tokens,) int64, first character of each token, ascending.
        ends: (n_tokens,) int64, one past the last character of each token, ascending.

    Returns:
        (n_tokens,) bool, True if a sentence ends after the token.
    """
    flags = np.zeros(len(ends), dtype=np.bool_)
    if not len(ends):
        return flags
    last_end = int(ends[-1])
    matches = _SENTENCE_END.finditer(text, int(starts[0]), last_end + _LOOK_AHEAD)
    stops = [match.end() for match in matches if match.start() <= last_end]
    tokens = np.searchsorted(ends, stops, side="right") - 1
    flags[tokens[tokens >= 0]] = True
    return flags


def piece_count(n_tokens: int, tokens_per_piece: int) -> int:
    """Return the number of pieces that `piece_starts` cuts `n_tokens` tokens into."""
    return max(1, round(n_tokens / tokens_per_piece))


def piece_starts(sentence_ends: BoolArray, tokens_per_piece: int) -> Int64Array:
    """Cut a window's tokens into max(1, round(n_tokens / tokens_per_piece)) contiguous pieces.

    The ideal cuts divide the tokens equally. Each is moved to the nearest sentence end (the earlier of two at the
    same distance) if that is within a third of a piece's length.

    Args:
        sentence_ends: (n_tokens,) bool, n_tokens >= 1, whether a sentence ends after the token.
        tokens_per_piece: tokens in a piece, at least 1.

    Returns:
        (n_pieces,) int64, strictly ascending from 0: the first token of each piece.
    """
    n_tokens = len(sentence_ends)
    n_pieces = piece_count(n_tokens, tokens_per_piece)
    starts = np.arange(n_pieces) * n_tokens // n_pieces
    candidates = np.flatnonzero(sentence_ends) + 1
    if n_pieces == 1 or candidates.size == 0:
        return starts
    length = n_tokens / n_pieces
    distances = np.abs(candidates[:, np.newaxis] - np.arange(1, n_pieces) * length)
    nearest = distances.argmin(axis=0)
    is_near = distances.min(axis=0) <= length * _TOLERANCE
    starts[1:] = np.where(is_near, candidates[nearest], starts[1:])
    return starts


def word_bounds(text: str) -> list[tuple[int, int]]:
    """Return the first character of each word, and one past its last."""
    bounds = [match.span() for match in WORD.finditer(text)]
    return _shortened(bounds) if any(end - start > _MAX_WORD for start, end in bounds) else bounds


def _shortened(words: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Divide words of more than 40 characters."""
    bounds: list[tuple[int, int]] = []
    for first, end in words:
        start = first
        while end - start > _MAX_WORD:
            bounds.append((start, start + _MAX_WORD))
            start += _MAX_WORD
        bounds.append((start, end))
    return bounds
