"""A function from texts to vectors that records its calls, and fails when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from support.indexes.word_encoder import WordEncoder


def mean_vectors(texts: list[str], dim: int) -> npt.NDArray[np.float32]:
    """Return the (n, dim) mean of random vectors of the words of each text, the same in every process."""
    words = WordEncoder(dim=dim, normalize=False)
    return np.stack([np.mean([words.vector(word) for word in text.split()], axis=0) for text in texts])


class EmbeddingFunction:
    """Records its calls; see `mean_vectors`.

    Args:
        dim: length of a vector.
        fail: called with the number of a call, from 1, and its texts; may raise, or return other vectors.

    Attributes:
        fail: as given.
        calls: the texts of each call.
        threads: names of the threads that made calls.
        most_at_once: the largest number of calls that were running at the same time.
    """

    def __init__(self, dim: int = 16, fail: Callable[[int, list[str]], Any] | None = None) -> None:
        self._dim = dim
        self.fail = fail
        self._lock = threading.Lock()
        self._n_running = 0
        self.calls: list[list[str]] = []
        self.threads: set[str] = set()
        self.most_at_once = 0

    def __call__(self, texts: list[str]) -> Any:
        with self._lock:
            self.calls.append(texts)
            number = len(self.calls)
            self.threads.add(threading.current_thread().name)
            self._n_running += 1
            self.most_at_once = max(self.most_at_once, self._n_running)
        try:
            spoiled = None if self.fail is None else self.fail(number, texts)
            return self.vectors(texts) if spoiled is None else spoiled
        finally:
            with self._lock:
                self._n_running -= 1

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Return the (n, dim) vectors of texts, without recording a call."""
        return mean_vectors(texts, self._dim)

    @property
    def sizes(self) -> list[int]:
        """The number of texts in each call."""
        return [len(texts) for texts in self.calls]
