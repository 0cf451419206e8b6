"""The tokens that a model wants around those of a text: special ones and a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarry.engine.encoding.tokenizer import Ids, TextTokenizer
from quarry.formats.bundle.folder import TOKENIZER_NAME
from quarry.formats.errors import CorruptFile

__all__ = ["TokenFrame", "token_frame"]


@dataclass(frozen=True, slots=True)
class TokenFrame:
    """What stands before and after the tokens of a text.

    Attributes:
        before: (n,) int64.
        after: (n,) int64.
    """

    before: Ids
    after: Ids

    @property
    def n_tokens(self) -> int:
        """Tokens of the frame itself."""
        return len(self.before) + len(self.after)

    def around(self, ids: Ids) -> Ids:
        """The (n_tokens,) input of a text's tokens."""
        return np.concatenate((self.before, ids, self.after))


def token_frame(tokenizer: TextTokenizer, prefix: str, window: int, path: Path) -> TokenFrame:
    """Find the special tokens before and after a text, and add a prefix's tokens to those before.

    Args:
        tokenizer: of the model.
        prefix: text put before every text.
        window: tokens that the model reads at once.
        path: of the bundle, for the error.

    Raises:
        CorruptFile: the window has no room for text beside the frame, or the tokenizer has none for a letter.
    """
    marked = tokenizer.framed("a")
    ids = np.array(marked.ids, np.int64)
    inside = np.flatnonzero(np.array(marked.special_tokens_mask) == 0)
    if not len(inside):
        raise CorruptFile(
            "the tokenizer has no token for a letter", path=path / TOKENIZER_NAME, actual=marked.tokens
        )
    before = np.concatenate((ids[: inside[0]], tokenizer.tokenise(prefix).ids))
    frame = TokenFrame(before, ids[inside[-1] + 1 :])
    if frame.n_tokens >= window:
        raise CorruptFile(
            "the bundle's window has no room for text beside prefix and special tokens",
            path=path,
            expected=f"more than {frame.n_tokens} tokens",
            actual=window,
        )
    return frame
