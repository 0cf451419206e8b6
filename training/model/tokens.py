"""Padded batches of tokenized texts, with the characters of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.engine.encoding.tokenizer import Ids, TextTokenizer, TokenFrame, token_frame
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["TextBatcher", "TextTokens", "TokenBatch"]


@dataclass(frozen=True, slots=True)
class TextTokens:
    """The tokens of one text that the network reads; special tokens are not among them.

    Attributes:
        text: the whole text, which the offsets refer to.
        ids: (n_tokens,) int64, n_tokens >= 1.
        starts: (n_tokens,) int64, first character of each token.
        ends: (n_tokens,) int64, one past the last character.
    """

    text: str
    ids: Ids
    starts: Ids
    ends: Ids


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Some texts as the network reads them.

    Attributes:
        ids: (n_texts, longest) int64; special tokens and prefix included, 0 as padding.
        mask: (n_texts, longest) int64, 1 for tokens and 0 for padding.
        texts: the tokens of each text, special ones left out.
        n_before: special and prefix tokens before the first token of a text.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    texts: tuple[TextTokens, ...]
    n_before: int

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, low: int, high: int) -> TokenBatch:
        """The texts low to high - 1, without the padding that only the others needed."""
        longest = int(self.mask[low:high].sum(1).max())
        rows = slice(low, high)
        return TokenBatch(self.ids[rows, :longest], self.mask[rows, :longest], self.texts[rows], self.n_before)

    def to(self, device: torch.device) -> TokenBatch:
        """The same batch on a device."""
        return TokenBatch(self.ids.to(device), self.mask.to(device), self.texts, self.n_before)


class TextBatcher:
    """Tokenizes texts and pads them.

    A text longer than the limit is cut behind its first tokens: training sees the beginning of a document, whereas
    the engine encodes all of it, window after window.

    Args:
        tokenizer_path: a tokenizer.json.
        prefix: text before every text.
        max_tokens: most tokens of a text, special tokens and prefix included.

    Raises:
        CorruptFile: the tokenizer cannot be read, or there is no room for text beside the special tokens.
    """

    def __init__(self, tokenizer_path: Path, prefix: str, max_tokens: int) -> None:
        self._tokenizer = TextTokenizer(tokenizer_path)
        self.frame: TokenFrame = token_frame(self._tokenizer, prefix, max_tokens, tokenizer_path.parent)
        self._room = max_tokens - self.frame.n_tokens

    def tokenize(self, text: str) -> TextTokens:
        """Tokenize one text and cut it.

        Raises:
            InvalidDocument: the text has no token.
        """
        tokens = self._tokenizer.tokenize(text)
        if not len(tokens.ids):
            raise InvalidDocument("a text without tokens cannot be trained on", actual=repr(text[:80]))
        kept = slice(0, self._room)
        return TextTokens(text, tokens.ids[kept], tokens.starts[kept], tokens.ends[kept])

    def batch(self, texts: Sequence[str]) -> TokenBatch:
        """Tokenize texts and pad them to the longest.

        Raises:
            InvalidDocument: a text has no token.
            InvalidSetting: there are no texts.
        """
        if not texts:
            raise InvalidSetting("a batch has no texts", expected="one at least")
        tokenized = tuple(map(self.tokenize, texts))
        longest = max(len(each.ids) for each in tokenized) + self.frame.n_tokens
        ids = torch.zeros((len(texts), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, each in enumerate(tokenized):
            framed = self.frame.around(each.ids)
            ids[row, : len(framed)] = torch.from_numpy(framed)
            mask[row, : len(framed)] = 1
        return TokenBatch(ids, mask, tokenized, len(self.frame.before))
