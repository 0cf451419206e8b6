"""Encoding documents: several threads work a bounded number of documents ahead, and results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.batch_encoder import BatchEncoder, as_batch_encoder
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.indexer.batches.document_batches import (
    Batch,
    DocumentGroups,
    EncodedItem,
    PreparedItem,
    divide_into_batches,
    join_documents,
)
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.registry import encoder_of_documents
from quarry.formats.errors import EncodingFailed, InvalidDocument

__all__ = ["DocumentEncoder", "EncodedDocument", "EncodedDocuments", "OnInvalid"]

OnInvalid = Callable[[InvalidDocument], None]
"""Called for a document that is left out; it may raise."""

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # documents in progress per thread
_MAX_VALUE = 65504  # of float16, one of the types that vectors are stored as


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document with its vectors and terms.

    Attributes:
        document: as it was given.
        vectors: its centroids and their spans.
        terms: its terms, repeated as often as they occur.
        n_tokens: number of tokens that were encoded, special tokens excluded.
    """

    document: Document
    vectors: DocumentVectors
    terms: list[str]
    n_tokens: int


@dataclass(frozen=True)
class DocumentEncoder:
    """Computes vectors and terms of documents; safe to use from several threads."""

    encoder: Encoder
    representation: Representation
    analyzer: Analyzer

    @cached_property
    def cutter(self) -> Encoder:
        """The encoder with the windows that the representation reads."""
        return encoder_of_documents(self.encoder, self.representation)

    def encode(self, document: Document) -> EncodedDocument:
        """Encode one document.

        Raises:
            InvalidDocument: it has no token, or its vectors are not finite or too large to be stored.
        """
        with _document_named(document):
            counted = _CountedWindows(self.cutter.windows(document.full_text))
            return self.finish(document, self.represent(document, counted), counted.n_tokens)

    def represent(self, document: Document, windows: Iterable[TokenVectors]) -> DocumentVectors:
        """Compute the centroids of a document from its windows, which may be encoded as they are read.

        Raises:
            InvalidDocument: it has no token.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # `finish` refuses vectors that are not finite
            return self.representation.represent(document.full_text, windows, self.encoder.normalize)

    def finish(self, document: Document, vectors: DocumentVectors, n_tokens: int) -> EncodedDocument:
        """Check the centroids of a document, and add its terms.

        Raises:
            InvalidDocument: the centroids are not finite, or too large to be stored.
        """
        has_dim = vectors.values.shape[1:] == (self.encoder.dim,)
        if not has_dim or not (np.abs(vectors.values) <= _MAX_VALUE).all():
            raise InvalidDocument(
                "the encoder gave no usable vectors",
                expected=f"values up to {_MAX_VALUE}, {self.encoder.dim} per vector",
                actual=f"shape {vectors.values.shape}",
            )
        return EncodedDocument(document, vectors, self.analyzer.terms(document.full_text), n_tokens)


class EncodedDocuments:
    """An iterator over encoded documents in their order, and a context manager that ends all work on them.

    Each document is encoded on one thread, or many together if the encoder is a `BatchEncoder`.

    Args:
        documents: what to encode.
        how: what to encode with.
        pool: whose threads to use.
        on_invalid: called for each document that cannot be encoded, which is then left out; None: raise.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        how: DocumentEncoder,
        pool: WorkerPool,
        on_invalid: OnInvalid | None = None,
    ) -> None:
        self._on_invalid = on_invalid
        self._pool = pool
        self._stages = ExitStack()
        self._read = _ReadDocuments(documents)
        self._futures: Iterator[Future[EncodedDocument]]
        batched = as_batch_encoder(how.cutter)
        if batched is not None:
            self._futures = self._in_batches(self._read, how, batched)
        else:
            self._futures = self._ahead(self._read, how.encode, pool.threads * _AHEAD)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EncodedDocument:
        """Return the next document.

        Raises:
            InvalidDocument: a document cannot be encoded; the next call continues after it.
            EncodingFailed: an embedding function failed; it has the documents that were read and not returned.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `documents` raised, after all documents before it.
        """
        while True:
            try:
                future = next(self._futures)
            except EncodingFailed as error:
                raise _with_documents(error, self._read.waiting) from error.__cause__
            document = self._read.waiting.popleft()
            try:
                return result_of(future)
            except EncodingFailed as error:
                raise _with_documents(error, [document, *self._read.waiting]) from error.__cause__
            except InvalidDocument as error:
                if self._on_invalid is None:
                    raise
                self._on_invalid(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stages.close()

    def _ahead(self, items: Iterable[T], work: Callable[[T], R], n_ahead: int) -> WorkAhead[T, R]:
        return self._stages.enter_context(WorkAhead(self._pool, items, work, n_ahead))

    def _in_batches(
        self, documents: Iterable[Document], how: DocumentEncoder, encoder: BatchEncoder[Any, Any]
    ) -> Iterator[Future[EncodedDocument]]:
        """Start three stages: documents are prepared ahead of the encoder, represented and analyzed after it."""
        groups = DocumentGroups(encoder, how.representation)
        limits = encoder.batch_limits

        def prepare(document: Document) -> PreparedItem:
            try:
                return document, groups.prepare(document.full_text)
            except InvalidDocument as error:  # raised in the document's turn
                return document, error

        def finish(item: EncodedItem) -> EncodedDocument:
            (document, prepared), found = item
            with _document_named(document):
                if isinstance(prepared, InvalidDocument):
                    raise prepared
                vectors = found if isinstance(found, DocumentVectors) else how.represent(document, found)
                return how.finish(document, vectors, prepared.text.n_tokens)

        prepared = self._ahead(documents, prepare, 2 * limits.documents)
        batches = divide_into_batches(map(result_of, prepared), limits)
        encoded = join_documents(self._encoded(batches, groups, limits.in_flight))
        return self._ahead(encoded, finish, limits.documents)

    def _encoded(
        self, batches: Iterable[Batch], groups: DocumentGroups, in_flight: int
    ) -> Iterator[tuple[Batch, list[DocumentVectors | list[TokenVectors]]]]:
        """Encode batches on this thread, or several at once on threads of their own."""
        if in_flight == 1:
            return map(groups.encode, batches)
        # Threads of their own, because calls wait for a service, and work of a pool must not wait for it.
        calls = self._stages.enter_context(WorkerPool(in_flight, "quarry-embed"))
        return map(result_of, self._stages.enter_context(WorkAhead(calls, batches, groups.encode, in_flight)))


class _ReadDocuments:
    """Documents as they are read, those kept that were not encoded yet.

    Attributes:
        waiting: documents that were read and not passed on yet, in their order.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = iter(documents)
        self.waiting: deque[Document] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Document:
        document = next(self._documents)
        self.waiting.append(document)
        return document


@contextmanager
def _document_named(document: Document) -> Iterator[None]:
    """Put the name of the document in front of the message of an error."""
    try:
        yield
    except InvalidDocument as error:
        name = document.origin or f"document {document.id!r}"
        message = f"{name}: {error.message}"
        raise InvalidDocument(message, expected=error.expected, actual=error.actual) from error


def _with_documents(error: EncodingFailed, waiting: Sequence[Document]) -> EncodingFailed:
    """Return an error of an encoder with the documents that were not added because of it."""
    first = repr(waiting[0].id) if waiting else "none"
    message = f"{error.message}; documents that were read and not added: {len(waiting)}, the first is {first}"
    return EncodingFailed(message, expected=error.expected, actual=error.actual, documents=waiting)


class _CountedWindows:
    """Windows that are passed on, their tokens counted."""

    def __init__(self, windows: Iterable[TokenVectors]) -> None:
        self._windows = windows
        self.n_tokens = 0

    def __iter__(self) -> Iterator[TokenVectors]:
        for window in self._windows:
            self.n_tokens += len(window.values)
            yield window
