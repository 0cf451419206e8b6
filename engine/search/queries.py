"""Validates and encodes the texts of queries."""

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
from quarry.engine.scoring.query_vectors import Queries, check_vectors
from quarry.formats.errors import InvalidQuery

__all__ = ["encode_queries", "query_texts"]

T = TypeVar("T")


def query_texts(queries: object) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        InvalidQuery: `queries` is neither a text nor several; the message has the number of a query that is not.
    """
    if isinstance(queries, str):
        return [queries]
    is_other = isinstance(queries, bytes | bytearray | Mapping) or rows_of_table(queries)
    given = None if is_other else iterator_of(queries)
    if given is None:
        raise InvalidQuery("queries are not texts", expected="a str or several", actual=type(queries).__name__)
    texts = []
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is not a text", expected="str", actual=type(text).__name__)
        texts.append(text)
    return texts


def encode_queries(encoder: Encoder, texts: list[str], threads: int) -> Queries:
    """Encode and validate queries: (n, dim) float32.

    Vectors from an encoder that runs in batches stay on its device, and are validated when they are used.

    Raises:
        InvalidQuery: a text has no token, or the encoder returns no valid vector; the message has its number.
    """
    if isinstance(encoder, BatchedEncoder) and texts:
        vectors = encoder.run_queries(_map_texts(encoder.prepare_query, texts, threads))
        _check_shape(0, vectors.shape[1:], encoder.dim)
        return vectors
    encoded = np.empty((len(texts), encoder.dim), np.float32)
    for number, vector in enumerate(_map_texts(encoder.encode_query, texts, threads)):
        _check_shape(number, vector.shape, encoder.dim)
        encoded[number] = vector
    check_vectors(encoded)
    return encoded


def _map_texts(work: Callable[[str], T], texts: list[str], threads: int) -> list[T]:
    """Apply a function to each text on several threads; return the results, or raise the first error, in order."""
    return map_on_threads(partial(_call_numbered, work), list(enumerate(texts)), threads, "quarry-query")


def _call_numbered(work: Callable[[str], T], numbered_text: tuple[int, str]) -> T:
    number, text = numbered_text
    try:
        return work(text)
    except InvalidQuery as error:
        raise InvalidQuery(
            f"query {number}: {error.message}", expected=error.expected, actual=error.actual
        ) from error


def _check_shape(number: int, shape: tuple[int, ...], dim: int) -> None:
    if shape != (dim,):
        raise InvalidQuery(
            f"query {number}: the encoder returned no valid vector", expected=f"shape {(dim,)}", actual=shape
        )
