"""Texts as an encoder divides them, from the places of their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quarry.engine.encoding.batch_encoder import PreparedText
from quarry.engine.encoding.tokenizer import Tokens
from quarry.formats.arrays import Int64Array


def prepared_text(starts: Int64Array, ends: Int64Array, windows: Sequence[tuple[int, int]]) -> PreparedText:
    """Return a text whose tokens, all of number 1, have these characters, in windows of these tokens."""
    return PreparedText(Tokens(np.ones(len(starts), np.int64), starts, ends), tuple(windows))
