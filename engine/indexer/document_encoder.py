"""Documents to vectors on several threads, in order, with a bounded number of documents under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.batched_encoder import BatchedEncoder
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.indexer.document_groups import DocumentGroups, PreparedDocument
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.formats.errors import InvalidDocument

__all__ = ["EncodedDocument", "OnInvalid", "encode_documents"]

OnInvalid = Callable[[InvalidDocument], None]
"""What is told of a document that is left out; it may raise."""

_Prepared = tuple[Document, PreparedDocument | InvalidDocument]
T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # documents under way for each thread
_GROUP = 256  # documents that an encoder of many gets at a time, to sort them by length,
_GROUP_TOKENS = 1 << 17  # or fewer, where they have so many tokens
_LARGEST = 65504  # of float16, one of the types that vectors are stored as


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document with its vectors and terms.

    Attributes:
        document: as it came.
        vectors: its centroids and the spans behind them.
        terms: its terms, repeated as often as they occur.
        n_tokens: tokens that were encoded, special ones left out.
    """

    document: Document
    vectors: DocumentVectors
    terms: list[str]
    n_tokens: int


@dataclass(frozen=True)
class DocumentEncoder:
    """What turns a document into vectors and terms; safe to use from several threads.

    Attributes:
        encoder: makes token vectors.
        representation: makes centroids of them.
        analyzer: makes terms.
    """

    encoder: Encoder
    representation: Representation
    analyzer: Analyzer

    def encode(self, document: Document) -> EncodedDocument:
        """Encode one document.

        Raises:
            InvalidDocument: it has no token, or its vectors are not finite or too long to be stored.
        """
        with _named(document):
            counted = _Counted(self.encoder.windows(document.full_text))
            vectors = self.represent(document, counted)
            return self.finish(document, vectors, counted.n_tokens)

    def represent(self, document: Document, windows: Iterable[TokenVectors]) -> DocumentVectors:
        """The centroids of a document whose windows are encoded, or are as they are read.

        Raises:
            InvalidDocument: it has no token.
        """
        return self.representation.represent(document.full_text, windows, self.encoder.normalise)

    def finish(self, document: Document, vectors: DocumentVectors, n_tokens: int) -> EncodedDocument:
        """A document with its centroids and terms.

        Raises:
            InvalidDocument: the centroids are not finite, or too long to be stored.
        """
        fits = vectors.values.shape[1:] == (self.encoder.dim,)
        if not fits or not (np.abs(vectors.values) <= _LARGEST).all():
            raise InvalidDocument(
                "the encoder gave no usable vectors",
                expected=f"numbers up to {_LARGEST}, {self.encoder.dim} a vector",
                actual=f"shape {vectors.values.shape}",
            )
        return EncodedDocument(document, vectors, self.analyzer.terms(document.full_text), n_tokens)


def encode_documents(
    documents: Iterable[Document],
    how: DocumentEncoder,
    threads: int,
    on_invalid: OnInvalid | None = None,
) -> Iterator[EncodedDocument]:
    """Encode documents, each on one thread or many together as the encoder wants it, and yield them in order.

    Where `documents` raises, all that came before is yielded first.

    Args:
        documents: what to encode.
        how: what with.
        threads: how many to use.
        on_invalid: called for a document that cannot be encoded, which is then left out; None: raise.

    Raises:
        InvalidDocument: a document has no token, or its vectors are not finite.
    """
    if isinstance(how.encoder, BatchedEncoder):
        futures = _encoded_in_groups(documents, how, how.encoder, threads)
    else:
        futures = _under_way(documents, how.encode, threads, threads * _AHEAD)
    for future in futures:
        try:
            encoded = future.result()
        except InvalidDocument as error:
            if on_invalid is None:
                raise
            on_invalid(error)
        else:
            yield encoded


def _encoded_in_groups(
    documents: Iterable[Document], how: DocumentEncoder, encoder: BatchedEncoder, threads: int
) -> Iterator[Future[EncodedDocument]]:
    """Documents whose encoder wants many at once: the tokenizer works ahead of it, the rest behind it."""
    groups = DocumentGroups(encoder, how.representation)

    def prepare(document: Document) -> _Prepared:
        try:
            return document, groups.prepare(document.full_text)
        except InvalidDocument as error:  # raised in the document's turn
            return document, error

    def finish(item: tuple[_Prepared, DocumentVectors | list[TokenVectors]]) -> EncodedDocument:
        (document, prepared), found = item
        with _named(document):
            if isinstance(prepared, InvalidDocument):
                raise prepared
            vectors = found if isinstance(found, DocumentVectors) else how.represent(document, found)
            return how.finish(document, vectors, prepared.text.n_tokens)

    prepared = _under_way(documents, prepare, threads, 2 * _GROUP)
    return _under_way(_run_in_groups(prepared, groups), finish, threads, _GROUP)


def _run_in_groups(
    prepared: Iterator[Future[_Prepared]], groups: DocumentGroups
) -> Iterator[tuple[_Prepared, DocumentVectors | list[TokenVectors]]]:
    failures: list[Exception] = []
    results = _until_failure((future.result() for future in prepared), failures)
    for group in _grouped(results):
        usable = [each for _, each in group if isinstance(each, PreparedDocument)]
        found = iter(groups.run(usable))
        for document, each in group:
            yield (document, each), next(found) if isinstance(each, PreparedDocument) else []
    for failure in failures:
        raise failure


def _grouped(items: Iterable[_Prepared]) -> Iterator[list[_Prepared]]:
    """Documents to be run together: so many, or with so many tokens that token vectors take bounded memory."""
    group: list[_Prepared] = []
    n_tokens = 0
    for item in items:
        group.append(item)
        n_tokens += item[1].text.n_tokens if isinstance(item[1], PreparedDocument) else 0
        if len(group) >= _GROUP or n_tokens >= _GROUP_TOKENS:
            yield group
            group, n_tokens = [], 0
    if group:
        yield group


def _under_way(items: Iterable[T], work: Callable[[T], R], threads: int, n_ahead: int) -> Iterator[Future[R]]:
    """The work on each item, in order, `n_ahead` of them under way; where `items` raises, this does so last."""
    failures: list[Exception] = []
    with ThreadPoolExecutor(threads, thread_name_prefix="quarry-encode") as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in _until_failure(items, failures):
                waiting.append(pool.submit(work, item))
                if len(waiting) >= n_ahead:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for future in waiting:
                future.cancel()
    for failure in failures:
        raise failure


@contextmanager
def _named(document: Document) -> Iterator[None]:
    """Put which document it is before what is wrong with it."""
    try:
        yield
    except InvalidDocument as error:
        where = document.origin or f"document {document.id!r}"
        message = f"{where}: {error.message}"
        raise InvalidDocument(message, expected=error.expected, actual=error.actual) from error


def _until_failure(items: Iterable[T], failures: list[Exception]) -> Iterator[T]:
    """The items up to the first error, which is put into `failures`."""
    try:
        yield from items
    except Exception as error:  # whatever it is, it is raised again in its turn
        failures.append(error)


class _Counted:
    """Windows on their way to a representation, their tokens counted."""

    def __init__(self, windows: Iterable[TokenVectors]) -> None:
        self._windows = windows
        self.n_tokens = 0

    def __iter__(self) -> Iterator[TokenVectors]:
        for window in self._windows:
            self.n_tokens += len(window.values)
            yield window
