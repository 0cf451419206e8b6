"""A reranker without a model: the share of the words of a query that a text has."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from quarry.formats.errors import InvalidDocument, InvalidQuery
from quarry_example.letters import lone_surrogate

__all__ = ["SharedWords"]

WORD = re.compile(r"\w+")


class SharedWords:
    """Scores a text by the words that it shares with the query, from 0 to 1."""

    name = "shared-words"

    def scores(self, query: str, texts: Sequence[str]) -> np.ndarray:
        """Return a score for each text."""
        if (position := lone_surrogate(query)) is not None:
            raise InvalidQuery(f"the query holds a lone surrogate at character {position}")
        wanted = words_of(query)
        if not wanted:
            raise InvalidQuery("the query has no token")
        scores = np.empty(len(texts), np.float32)
        for number, text in enumerate(texts):
            if (position := lone_surrogate(text)) is not None:
                raise InvalidDocument(f"text {number} holds a lone surrogate at character {position}")
            if not (words := words_of(text)):
                raise InvalidDocument(f"text {number} has no token")
            scores[number] = len(wanted & words) / len(wanted)
        return scores


def words_of(text: str) -> set[str]:
    """Return the words of a text."""
    return {word.casefold() for word in WORD.findall(text)}
