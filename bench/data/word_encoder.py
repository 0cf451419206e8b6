"""An encoder of random word vectors: fast, for measurements of storage and search without the time of encoding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import xxhash

from quarry.engine import TokenVectors

__all__ = ["DIM", "Vectors", "WordVectorEncoder", "word_vectors"]

DIM = 384
_N_VECTORS = 1 << 14
_WORD = re.compile(r"\w+")
_LONG_WORD = re.compile(r"\w{5,}")  # frequent short words would put all vectors into few inverted lists

Vectors = npt.NDArray[np.float32]


@cache
def word_vectors() -> Vectors:
    """Return 16,384 random vectors with L2 norm 1, (16384, 384) float32."""
    vectors = np.random.default_rng(0).standard_normal((_N_VECTORS, DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


class WordVectorEncoder:
    """An encoder that gives each word one of `word_vectors`, selected by the hash of the word."""

    name = "random word vectors"
    identity = "random-word-vectors"
    normalize = True
    vector_kinds: frozenset[Literal["token", "pooled"]] = frozenset({"token"})
    trained_representation = None
    beta = None
    dim = DIM

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Yield one window with the words of five or more letters, or all words if there are none."""
        words = list(_LONG_WORD.finditer(text)) or list(_WORD.finditer(text))
        if words:
            values = _look_up([word[0] for word in words])
            bounds = np.array([word.span() for word in words], np.int64)
            mean = values.mean(axis=0)
            yield TokenVectors(values, bounds[:, 0], bounds[:, 1], mean, mean)

    def encode_query(self, text: str) -> Vectors:
        """Return the normalized sum of the word vectors."""
        total = _look_up(_LONG_WORD.findall(text) or _WORD.findall(text)).sum(axis=0)
        normalized: Vectors = total / np.linalg.norm(total)
        return normalized


def _look_up(words: list[str]) -> Vectors:
    return word_vectors()[[xxhash.xxh3_64_intdigest(word.lower().encode()) % _N_VECTORS for word in words]]
