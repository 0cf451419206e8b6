"""How a tokenised document is cut into windows that an encoder can read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.sentences import sentence_end_flags

__all__ = ["window_bounds"]


def window_bounds(
    text: str, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], max_tokens: int
) -> Iterator[tuple[int, int]]:
    """Cut tokens into consecutive windows, without overlap and without dropping any.

    A window is cut at the last sentence end in its last quarter; where there is none, at the last word boundary
    there (a gap between two tokens); where there is none either, when it is full. The rest is the last window.

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


def _cut(text: str, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], first: int, limit: int) -> int:
    """Return the position in ``(first, limit]`` to cut at; tokens exist beyond ``limit``."""
    quarter = limit - max(1, (limit - first) // 4)
    sentence_ends = np.flatnonzero(sentence_end_flags(text, starts[quarter:limit], ends[quarter:limit]))
    if len(sentence_ends):
        return quarter + 1 + int(sentence_ends[-1])
    gaps = np.flatnonzero(starts[quarter + 1 : limit + 1] > ends[quarter:limit])
    return quarter + 1 + int(gaps[-1]) if len(gaps) else limit
