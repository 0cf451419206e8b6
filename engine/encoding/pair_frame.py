"""Special tokens around the two texts that a cross-encoder reads together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarry.engine.encoding.tokenizer import Ids, TextTokenizer
from quarry.formats.errors import CorruptFile

__all__ = ["PairFrame", "find_pair_frame"]


@dataclass(frozen=True, slots=True)
class PairFrame:
    """Special tokens that a tokenizer adds to a pair.

    Attributes:
        ids: special tokens before the first text, between the two, after the second: (n_tokens,) int64 each.
        types: token types of special tokens, first text, special tokens, second text, special tokens; arrays of
            length 1 for the texts.
    """

    ids: tuple[Ids, Ids, Ids]
    types: tuple[Ids, ...]

    @property
    def n_tokens(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.ids))

    def around(self, query: Ids, text: Ids) -> tuple[Ids, Ids]:
        """Return token ids and token types of a pair: (n_tokens,) int64 each."""
        before, between, after = self.ids
        before_type, query_type, between_type, text_type, after_type = self.types
        ids = np.concatenate((before, query, between, text, after))
        types = np.concatenate(
            (before_type, query_type.repeat(len(query)), between_type, text_type.repeat(len(text)), after_type)
        )
        return ids, types


def find_pair_frame(tokenizer: TextTokenizer, path: Path) -> PairFrame:
    """Tokenize a pair to find the special tokens around its texts.

    Args:
        tokenizer: the tokenizer of the model.
        path: the path of its file, for the error.

    Raises:
        CorruptFile: the tokenizer does not put two texts after each other.
    """
    encoding = tokenizer.encode_with_special_tokens("a", "a")
    ids, types = np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64)
    owners = np.array([-1 if owner is None else owner for owner in encoding.sequence_ids])
    query, text = np.flatnonzero(owners == 0), np.flatnonzero(owners == 1)
    if not len(query) or not len(text) or text[0] < query[-1]:
        raise CorruptFile("the tokenizer does not combine pairs", path=path)
    cuts = [query[0], query[-1] + 1, text[0], text[-1] + 1]
    before, _, between, _, after = np.split(ids, cuts)
    types_of_parts = np.split(types, cuts)
    types_of_parts[1], types_of_parts[3] = types_of_parts[1][:1], types_of_parts[3][:1]
    return PairFrame((before, between, after), tuple(types_of_parts))
