"""Validates and encodes query texts, on several threads or in batches, as the encoder prefers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.engine.encoding.batch_encoder import BatchEncoder, as_batch_encoder
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.process.worker_pool import map_on_threads
from quarry.formats.arrays import Float32Array
from quarry.formats.errors import InvalidQuery

__all__ = ["encode_queries", "query_texts", "valid_queries"]

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


def encode_queries(encoder: Encoder, texts: list[str], threads: int) -> Float32Array | DeviceVectors:
    """Encode each of `texts`: (n, dim) float32, on the device of an encoder that works in batches there.

    Raises:
        InvalidQuery: a text has no token, or the encoder returns no valid vector; the message has its number.
        EncodingFailed: a function of the application failed, or returned something else than vectors.
    """
    batched = as_batch_encoder(encoder)
    if batched is not None and texts:
        vectors = batched.run_queries(_each(batched.prepare_query, texts, threads))
        _check_shape(0, vectors.shape[1:], encoder.dim)
        return vectors
    encoded = np.empty((len(texts), encoder.dim), np.float32)
    for number, vector in enumerate(_each(encoder.encode_query, texts, threads)):
        _check_shape(number, vector.shape, encoder.dim)
        encoded[number] = vector
    return encoded


def valid_queries(encoder: BatchEncoder[Any, Any], texts: list[str]) -> list[str]:
    """Return the texts that an encoder accepts as queries."""
    valid = []
    for text in texts:
        with suppress(InvalidQuery):
            encoder.prepare_query(text)
            valid.append(text)
    return valid


def _each(work: Callable[[str], T], texts: list[str], threads: int) -> list[T]:
    """Return the results for the texts in their order; the first error in that order is raised."""
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
            f"query {number}: the encoder returned no valid vector", expected=f"shape {(dim,)}", actual=shape
        )
