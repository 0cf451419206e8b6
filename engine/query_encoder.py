"""Query texts to vectors: one here and now, several on several threads."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from engine.encoder import Encoder
from formats.errors import InvalidQuery

__all__ = ["encode_queries"]


def encode_queries(encoder: Encoder, texts: list[str], threads: int) -> npt.NDArray[np.float32]:
    """Encode each of `texts`: (n, dim) float32.

    Raises:
        InvalidQuery: a text has no token, or the encoder gives no usable vector; the message has its number.
    """
    vectors = np.empty((len(texts), encoder.dim), np.float32)

    def encode(number: int) -> None:
        try:
            vector = encoder.encode_query(texts[number])
        except InvalidQuery as error:
            raise InvalidQuery(
                f"query {number}: {error.message}", expected=error.expected, actual=error.actual
            ) from error
        if vector.shape != vectors.shape[1:]:
            raise InvalidQuery(
                f"query {number}: the encoder gave no usable vector",
                expected=f"shape {vectors.shape[1:]}",
                actual=vector.shape,
            )
        vectors[number] = vector

    numbers: Iterable[int] = range(len(texts))
    if len(texts) < 2 or threads == 1:
        for number in numbers:
            encode(number)
    else:
        with ThreadPoolExecutor(min(threads, len(texts)), thread_name_prefix="quarry-query") as pool:
            list(pool.map(encode, numbers))  # the first error in their order is raised
    return vectors
