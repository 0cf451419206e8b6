"""Padded batches of pairs of a query and a text, as a cross-encoder reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.engine.encoding.pair_frame import PairFrame, find_pair_frame
from quarry.engine.encoding.tokenizer import Ids, TextTokenizer
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["PairBatch", "PairBatcher"]


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
