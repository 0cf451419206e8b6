"""Encoders that take many texts in one call: models on a device, functions of an application.

Queries are encoded here, by such encoders together and by others on several threads. Documents are divided
among the calls of a function, so that each gets as many passages as it takes; a device gets whole documents,
because centroids are computed there. Calls are made on the thread that adds documents unless several are in
flight, so that an interrupt reaches the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast, runtime_checkable

import numpy as np

from quarry.engine.encoding.encoder import Encoder, TokenVectors
from quarry.engine.encoding.tokenizer import Tokens
from quarry.engine.process.worker_pool import map_on_threads
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.errors import InvalidQuery

if TYPE_CHECKING:
    import torch

    from quarry.engine.gpu.device_vectors import DeviceVectors

__all__ = [
    "BatchEncoder",
    "BatchLimits",
    "DeviceBatchEncoder",
    "DeviceTokens",
    "PreparedInputs",
    "PreparedText",
    "as_batch_encoder",
    "encode_queries",
    "valid_queries",
]

_METHODS = ("prepare", "run", "prepare_query", "run_queries")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one call of an encoder.

    Attributes:
        documents: maximum number of documents in a batch, and how many are worked on ahead of it.
        tokens: number of tokens from which on a batch is complete; None: any number.
        inputs: number of inputs (windows or passages) in a full batch: documents are divided among batches, so
            that every batch but the last is full. None: a document is never divided.
        in_flight: maximum number of calls at once, each on its own thread; 1: on the thread that adds documents.
    """

    documents: int
    tokens: int | None = None
    inputs: int | None = None
    in_flight: int = 1


class PreparedInputs(Protocol):
    """A document cut into the inputs of an encoder.

    Attributes:
        n_tokens: number of tokens of the document.
        n_inputs: number of inputs; 0 for a text without tokens.
    """

    @property
    def n_tokens(self) -> int: ...  # noqa: D102
    @property
    def n_inputs(self) -> int: ...  # noqa: D102

    def part(self, first: int, stop: int) -> Self:
        """Return the same document with only the inputs from `first` to before `stop`."""
        ...


P = TypeVar("P", bound=PreparedInputs)
Q = TypeVar("Q")


@runtime_checkable
class BatchEncoder(Encoder, Protocol[P, Q]):
    """An encoder that takes many texts in one call.

    Documents and queries are prepared one by one, on several threads, and then run together.

    Attributes:
        batch_limits: how much one call takes.
    """

    @property
    def batch_limits(self) -> BatchLimits: ...  # noqa: D102

    def prepare(self, text: str) -> P:
        """Cut a document into inputs; safe to call from several threads.

        Raises:
            InvalidDocument: the text holds a lone surrogate; the message names its position.
        """
        ...

    def run(self, prepared: Sequence[P]) -> list[list[TokenVectors]]:
        """Encode documents, or parts of documents; return the windows of each.

        Raises:
            EncodingFailed: a function of the application failed, or returned something else than vectors.
        """
        ...

    def prepare_query(self, text: str) -> Q:
        """Prepare a query; safe to call from several threads.

        Raises:
            InvalidQuery: the text has no token, or holds a lone surrogate.
        """
        ...

    def run_queries(self, prepared: Sequence[Q]) -> Float32Array | DeviceVectors:
        """Encode at least one query: (n, dim) float32, in main memory or on the encoder's device.

        Raises:
            EncodingFailed: a function of the application failed, or returned something else than vectors.
        """
        ...


def as_batch_encoder(encoder: Encoder) -> BatchEncoder[Any, Any] | None:
    """Return an encoder that takes many texts in one call, None for any other.

    For each query: ``isinstance`` with a protocol of so many attributes takes thirty times as long.
    """
    has_methods = all(callable(getattr(encoder, name, None)) for name in _METHODS)
    is_batched = has_methods and isinstance(getattr(encoder, "batch_limits", None), BatchLimits)
    return cast("BatchEncoder[Any, Any]", encoder) if is_batched else None


@dataclass(frozen=True, slots=True)
class PreparedText:
    """The tokens and windows of a document.

    Attributes:
        tokens: all tokens.
        bounds: (first, stop) token positions of each window; empty without tokens.
    """

    tokens: Tokens
    bounds: tuple[tuple[int, int], ...]

    @property
    def n_tokens(self) -> int:
        """Number of tokens, without special tokens."""
        return len(self.tokens.ids)

    @property
    def n_inputs(self) -> int:
        """Number of windows."""
        return len(self.bounds)

    def part(self, first: int, stop: int) -> PreparedText:
        """Return the same document with only the windows from `first` to before `stop`."""
        return replace(self, bounds=self.bounds[first:stop])


@dataclass(frozen=True, eq=False)
class DeviceTokens:
    """The token vectors of several documents, without special tokens.

    Attributes:
        values: (n_tokens, dim) float32 on the device, document after document.
        offsets: (n_docs + 1,) int64 in main memory, ascending from 0: where each document's tokens start.
    """

    values: torch.Tensor
    offsets: Int64Array


@runtime_checkable
class DeviceBatchEncoder(BatchEncoder[PreparedText, Any], Protocol):
    """An encoder in batches that can leave token vectors on its device, where centroids are computed."""

    def run_on_device(self, prepared: Sequence[PreparedText]) -> DeviceTokens:
        """Encode the tokens of documents; the vectors stay on the device, for the calling thread."""
        ...


T = TypeVar("T")


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
    if len(texts) == 1:
        return [_numbered(work, (0, texts[0]))]
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
