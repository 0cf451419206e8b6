"""Documents to vectors on several threads, in order, a bounded number of documents ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.batched_encoder import BatchedEncoder
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.indexer.document_groups import DocumentGroups, PreparedDocument
from quarry.engine.process.exit_gate import in_progress
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.formats.errors import InvalidDocument

__all__ = ["DocumentEncoder", "EncodedDocument", "EncodedDocuments", "OnInvalid"]

OnInvalid = Callable[[InvalidDocument], None]
"""What is told of a document that is left out; it may raise."""

_Prepared = tuple[Document, PreparedDocument | InvalidDocument]
_Grouped = tuple[_Prepared, DocumentVectors | list[TokenVectors]]
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
        with np.errstate(over="ignore", invalid="ignore"):  # `finish` refuses vectors that are not finite
            return self.representation.represent(document.full_text, windows, self.encoder.normalize)

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


class EncodedDocuments:
    """Documents encoded ahead, each on one thread or many together, as the encoder prefers; in their order.

    An iterator, and a context manager that leaves nothing under way.

    Args:
        documents: what to encode.
        how: what with.
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
        self._futures: Iterator[Future[EncodedDocument]]
        if isinstance(how.encoder, BatchedEncoder):
            self._futures = self._in_groups(documents, how, how.encoder)
        else:
            self._futures = self._ahead(documents, how.encode, pool.threads * _AHEAD)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EncodedDocument:
        """Return the next document.

        Raises:
            InvalidDocument: a document has no token, or its vectors are not finite; the next call goes on after
                it.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `documents` raised, after all documents that came before.
        """
        while True:
            future = next(self._futures)
            try:
                return result_of(future)
            except InvalidDocument as error:
                if self._on_invalid is None:
                    raise
                self._on_invalid(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stages.close()

    def _ahead(self, items: Iterable[T], work: Callable[[T], R], n_ahead: int) -> WorkAhead[T, R]:
        return self._stages.enter_context(WorkAhead(self._pool, items, work, n_ahead))

    def _in_groups(
        self, documents: Iterable[Document], how: DocumentEncoder, encoder: BatchedEncoder
    ) -> Iterator[Future[EncodedDocument]]:
        """Documents whose encoder wants many at once: the tokenizer works ahead of it, the rest behind it."""
        groups = DocumentGroups(encoder, how.representation)

        def prepare(document: Document) -> _Prepared:
            try:
                return document, groups.prepare(document.full_text)
            except InvalidDocument as error:  # raised in the document's turn
                return document, error

        def finish(item: _Grouped) -> EncodedDocument:
            (document, prepared), found = item
            with _named(document):
                if isinstance(prepared, InvalidDocument):
                    raise prepared
                vectors = found if isinstance(found, DocumentVectors) else how.represent(document, found)
                return how.finish(document, vectors, prepared.text.n_tokens)

        prepared = self._ahead(documents, prepare, 2 * _GROUP)
        return self._ahead(_run_in_groups(prepared, groups), finish, _GROUP)


def _run_in_groups(prepared: Iterator[Future[_Prepared]], groups: DocumentGroups) -> Iterator[_Grouped]:
    """Documents with what groups of them are encoded to; where `prepared` raises, this does so last."""
    failures: list[Exception] = []
    results = _until_failure(map(result_of, prepared), failures)
    for group in _grouped(results):
        usable = [each for _, each in group if isinstance(each, PreparedDocument)]
        with in_progress:
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
