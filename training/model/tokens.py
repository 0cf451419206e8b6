"""Padded batches of tokenized texts, with the characters of each token, and of pairs for cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.engine.encoding.tokenizer import (
    Ids,
    PairFrame,
    TextTokenizer,
    TokenFrame,
    find_pair_frame,
    token_frame,
)
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["PairBatch", "PairBatcher", "TextBatcher", "TextTokens", "TokenBatch"]


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

    Attributes:
        max_tokens: as given.

    Raises:
        CorruptFile: the tokenizer cannot be read, or there is no room for text beside the special tokens.
    """

    def __init__(self, tokenizer_path: Path, prefix: str, max_tokens: int) -> None:
        self._tokenizer = TextTokenizer(tokenizer_path)
        self.frame: TokenFrame = token_frame(self._tokenizer, prefix, max_tokens, tokenizer_path.parent)
        self.max_tokens = max_tokens
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


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Some pairs as the network reads them.

    Attributes:
        ids: (n_pairs, longest) int64, special tokens included, 0 as padding.
        mask: (n_pairs, longest) int64, 1 for tokens and 0 for padding.
        types: (n_pairs, longest) int64 token types.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor

    def to(self, device: torch.device) -> PairBatch:
        """The same batch on a device."""
        return PairBatch(self.ids.to(device), self.mask.to(device), self.types.to(device))


class PairBatcher:
    """Tokenizes pairs and pads them; of either text the first tokens are read.

    Attributes:
        frame: the special tokens of a pair.

    Args:
        tokenizer_path: a tokenizer.json.
        query_tokens: most tokens of a query, without special tokens.
        text_tokens: most tokens of a text.

    Raises:
        CorruptFile: the tokenizer cannot be read, or does not combine pairs.
        InvalidSetting: there is no room for a token.
    """

    def __init__(self, tokenizer_path: Path, query_tokens: int, text_tokens: int) -> None:
        if min(query_tokens, text_tokens) < 1:
            raise InvalidSetting("pairs have no room for tokens", expected="1 at least of each text")
        self._tokenizer = TextTokenizer(tokenizer_path)
        self.frame: PairFrame = find_pair_frame(self._tokenizer, tokenizer_path)
        self._query_tokens, self._text_tokens = query_tokens, text_tokens

    @property
    def max_tokens(self) -> int:
        """Length of the longest pair, special tokens included."""
        return self.frame.n_tokens + self._query_tokens + self._text_tokens

    def batch(self, pairs: Sequence[tuple[str, str]]) -> PairBatch:
        """Tokenize pairs and pad them to the longest.

        Raises:
            InvalidDocument: a text has no token.
            InvalidSetting: there are no pairs.
        """
        if not pairs:
            raise InvalidSetting("a batch has no pairs", expected="one at least")
        queries = {query: self._ids(query, self._query_tokens) for query, _ in pairs}
        rows = [self.frame.around(queries[query], self._ids(text, self._text_tokens)) for query, text in pairs]
        shape = (len(rows), max(len(ids) for ids, _ in rows))
        batch = PairBatch(*(torch.zeros(shape, dtype=torch.long) for _ in range(3)))
        for row, (ids, types) in enumerate(rows):
            batch.ids[row, : len(ids)] = torch.from_numpy(ids)
            batch.types[row, : len(ids)] = torch.from_numpy(types)
            batch.mask[row, : len(ids)] = 1
        return batch

    def _ids(self, text: str, most: int) -> Ids:
        ids = self._tokenizer.tokenize(text).ids[:most]
        if not len(ids):
            raise InvalidDocument("a text without tokens cannot be trained on", actual=repr(text[:80]))
        return ids
