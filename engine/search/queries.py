"""Query texts validated and encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import numpy as np

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.engine.encoding.batched_encoder import BatchedEncoder
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.process.worker_pool import map_on_threads
from quarry.engine.scoring.query_vectors import Queries
from quarry.formats.errors import InvalidQuery

__all__ = ["encode_queries", "query_texts"]


def query_texts(queries: object) -> list[str]:
    """The queries as a list: one text, or each of several.

    Raises:
        InvalidQuery: what was given is neither, or one of several is no text; the message has its number.
    """
    if isinstance(queries, str):
        return [queries]
    is_other = isinstance(queries, bytes | bytearray | Mapping) or rows_of_table(queries)
    given = None if is_other else iterator_of(queries)
    if given is None:
        raise InvalidQuery("no text to search for", expected="a str or several", actual=type(queries).__name__)
    texts = []
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is no text", expected="str", actual=type(text).__name__)
        texts.append(text)
    return texts


T = TypeVar("T")


def encode_queries(encoder: Encoder, texts: list[str], threads: int) -> Queries:
    """Encode each of `texts`: (n, dim) float32, on the device of an encoder that works in batches there.

    Raises:
        InvalidQuery: a text has no token, or the encoder gives no usable vector; the message has its number.
    """
    if isinstance(encoder, BatchedEncoder) and texts:
        vectors = encoder.run_queries(_each(encoder.prepare_query, texts, threads))
        _check_shape(0, vectors.shape[1:], encoder.dim)
        return vectors
    encoded = np.empty((len(texts), encoder.dim), np.float32)
    for number, vector in enumerate(_each(encoder.encode_query, texts, threads)):
        _check_shape(number, vector.shape, encoder.dim)
        encoded[number] = vector
    return encoded


def _each(work: Callable[[str], T], texts: list[str], threads: int) -> list[T]:
    """What becomes of each text, in their order, in which the first error is raised."""
    return map_on_threads(partial(_numbered, work), list(enumerate(texts)), threads, "quarry-query")


def _numbered(work: Callable[[str], T], numbered: tuple[int, str]) -> T:
    number, text = numbered
    try:
        return work(text)
    except InvalidQuery as error:
        raise InvalidQuery(
            f"query {number}: {error.message}", expected=error.expected, actual=error.actual
        ) from error


def _check_shape(number: int, shape: tuple[int, ...], dim: int) -> None:
    if shape != (dim,):
        raise InvalidQuery(
            f"query {number}: the encoder gave no usable vector", expected=f"shape {(dim,)}", actual=shape
        )
