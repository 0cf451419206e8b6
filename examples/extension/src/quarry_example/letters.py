"""An encoder without a model: the vector of a word counts its sequences of three letters."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import numpy as np

from quarry.engine import TokenVectors
from quarry.formats.errors import InvalidDocument, InvalidQuery

__all__ = ["LetterEncoder"]

WORD = re.compile(r"\w+")
WINDOW = 256  # words


class LetterEncoder:
    """Encodes words by hashed sequences of letters, and a query as the mean of its words."""

    name = identity = "letters-128"
    dim = 128
    normalize = True
    beta = None
    vector_kinds = frozenset({"token"})
    trained_representation = None

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Yield the words of a document."""
        if (position := lone_surrogate(text)) is not None:
            raise InvalidDocument(f"the text holds a lone surrogate at character {position}")
        words = list(WORD.finditer(text))
        for low in range(0, len(words), WINDOW):
            part = words[low : low + WINDOW]
            values = np.stack([vector_of(word[0]) for word in part])
            places = np.array([word.span() for word in part], np.int64)
            mean = values.mean(axis=0)
            yield TokenVectors(values, places[:, 0], places[:, 1], mean, mean)

    def encode_query(self, text: str) -> np.ndarray:
        """Return the mean of the words of a query, with norm 1."""
        if (position := lone_surrogate(text)) is not None:
            raise InvalidQuery(f"the query holds a lone surrogate at character {position}")
        windows = list(self.windows(text))
        if not windows:
            raise InvalidQuery("the query has no token")
        mean = np.concatenate([window.values for window in windows]).mean(axis=0)
        return mean / np.linalg.norm(mean)


def vector_of(word: str) -> np.ndarray:
    """Return the vector of a word, with norm 1."""
    letters = f"<{word.casefold()}>"
    vector = np.zeros(LetterEncoder.dim, np.float32)
    for start in range(len(letters) - 2):
        vector[zlib.crc32(letters[start : start + 3].encode()) % LetterEncoder.dim] += 1
    return vector / np.linalg.norm(vector)


def lone_surrogate(text: str) -> int | None:
    """Return the position of the first character that UTF-8 cannot encode."""
    return next((place for place, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
