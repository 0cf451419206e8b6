"""Encoders without a language model: complete implementations of `quarry.engine.encoding.encoder.Encoder`.

`WordEncoder` maps every word to a random unit vector, `TableEncoder` maps every number to a row of a table, so a
test controls every vector of a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import xxhash

from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.formats.errors import InvalidDocument, InvalidQuery

Vector = npt.NDArray[np.float32]
_WORD = re.compile(r"\w+")


def _word_windows(text: str, vector_of: Callable[[str], Vector], window: int) -> Iterator[TokenVectors]:
    """Yield the words of a text, `window` at a time; the mean is also the vector of the special token."""
    if not _is_utf8(text):
        raise InvalidDocument("the text holds a lone surrogate")
    words = list(_WORD.finditer(text))
    for low in range(0, len(words), window):
        part = words[low : low + window]
        values = np.stack([vector_of(word[0]) for word in part])
        bounds = np.array([word.span() for word in part], np.int64)
        mean = values.mean(axis=0)
        yield TokenVectors(values, bounds[:, 0], bounds[:, 1], mean, mean)


def _query_vector(windows: Iterator[TokenVectors], normalize: bool) -> Vector:
    values = np.concatenate([window.values for window in windows] or [np.empty((0, 1), np.float32)])
    if not len(values):
        raise InvalidQuery("the query has no token")
    mean = values.mean(axis=0)
    length = float(np.linalg.norm(mean))
    return mean / np.float32(length) if normalize and length else mean


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class WordEncoder:
    """Encodes each word as a random unit vector, the same in every process."""

    dim: int = 32
    normalize: bool = True
    beta: float | None = None
    name: str = "words"
    window: int = 64
    _known: dict[str, Vector] = field(default_factory=dict, repr=False, compare=False)

    vector_kinds: ClassVar[frozenset[VectorKind]] = frozenset({"token"})
    trained_representation: ClassVar[None] = None

    @property
    def identity(self) -> str:
        return f"{self.name}-{self.dim}-{self.normalize}-{self.beta}"

    def vector(self, word: str) -> Vector:
        found = self._known.get(word)
        if found is None:
            generator = np.random.default_rng(xxhash.xxh3_64_intdigest(word.encode()))
            found = generator.standard_normal(self.dim).astype(np.float32)
            found /= np.linalg.norm(found)
            if len(self._known) < 10_000:
                self._known[word] = found
        return found

    def windows(self, text: str) -> Iterator[TokenVectors]:
        return _word_windows(text, self.vector, self.window)

    def encode_query(self, text: str) -> Vector:
        if not _is_utf8(text):
            raise InvalidQuery("the query holds a lone surrogate")
        return _query_vector(self.windows(text), self.normalize)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Encodes the words of a text, which are row numbers, as the rows of an (n, dim) float32 table."""

    table: Vector
    beta: float | None = None
    normalize: bool = False
    name: str = "table"
    window: int = 512

    vector_kinds: ClassVar[frozenset[VectorKind]] = frozenset({"token"})
    trained_representation: ClassVar[None] = None

    @cached_property
    def identity(self) -> str:
        return f"{self.name}-{xxhash.xxh3_128_hexdigest(np.ascontiguousarray(self.table).tobytes())}-{self.beta}"

    @property
    def dim(self) -> int:
        return int(self.table.shape[1])

    def windows(self, text: str) -> Iterator[TokenVectors]:
        return _word_windows(text, lambda word: self.table[int(word)], self.window)

    def encode_query(self, text: str) -> Vector:
        return _query_vector(self.windows(text), self.normalize)


def table_of(documents: list[Vector], beta: float | None = None) -> tuple[TableEncoder, list[dict[str, object]]]:
    """Return an encoder, and documents of ids "0", "1", ... that it encodes as these (n, dim) float32 vectors.

    With `engine.KMeans(4096)` these vectors are the centroids, if no document has the same vector twice.
    """
    encoder = TableEncoder(np.concatenate(documents), beta)
    stops = np.cumsum([len(vectors) for vectors in documents]).tolist()
    return encoder, [
        {"id": str(number), "text": " ".join(map(str, range(stop - len(vectors), stop)))}
        for number, (vectors, stop) in enumerate(zip(documents, stops, strict=True))
    ]
