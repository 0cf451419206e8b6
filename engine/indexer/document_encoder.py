"""Encoding documents: several threads work a bounded number of documents ahead, and results come in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.batched_encoder import BatchedEncoder, PreparedText
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.process.exit_gate import in_progress
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.pieces import TextPieces
from quarry.formats.errors import InvalidDocument

if TYPE_CHECKING:
    from quarry.engine.representation.on_device import DeviceRepresentation

__all__ = [
    "DocumentEncoder",
    "DocumentGroups",
    "EncodedDocument",
    "EncodedDocuments",
    "OnInvalid",
    "PreparedDocument",
]

OnInvalid = Callable[[InvalidDocument], None]
"""Called for a document that is left out; it may raise."""

_Prepared = tuple[Document, "PreparedDocument | InvalidDocument"]
_Encoded = tuple[_Prepared, DocumentVectors | list[TokenVectors]]
T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # documents in progress per thread
_GROUP = 256  # documents that a batched encoder gets at a time, to sort them by length,
_GROUP_TOKENS = 1 << 17  # or fewer if they have this many tokens
_MAX_VALUE = 65504  # of float16, one of the types that vectors are stored as

_log = logging.getLogger(__name__)


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
    """Computes vectors and terms of documents; safe to use from several threads.

    Attributes:
        encoder: computes token vectors.
        representation: computes centroids from them.
        analyzer: splits texts into terms.
    """

    encoder: Encoder
    representation: Representation
    analyzer: Analyzer

    def encode(self, document: Document) -> EncodedDocument:
        """Encode one document.

        Raises:
            InvalidDocument: it has no token, or its vectors are not finite or too large to be stored.
        """
        with _document_named(document):
            counted = _CountedWindows(self.encoder.windows(document.full_text))
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


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready for a batched encoder.

    Attributes:
        text: its tokens.
        pieces: where it is cut, if that is needed on the device.
    """

    text: PreparedText
    pieces: TextPieces | None


class DocumentGroups:
    """Encodes groups of documents with a batched encoder; computes their centroids on its device if possible.

    Args:
        encoder: computes token vectors.
        representation: computes centroids from them.
    """

    def __init__(self, encoder: BatchedEncoder, representation: Representation) -> None:
        self._encoder = encoder
        self._on_device: DeviceRepresentation | None = None
        if "token" in encoder.vector_kinds:
            from quarry.engine.representation.on_device import device_representation

            self._on_device = device_representation(representation)

    def prepare(self, text: str) -> PreparedDocument:
        """Tokenize a document; safe to call from several threads.

        Raises:
            InvalidDocument: the text has a lone surrogate; the message names its position.
        """
        prepared = self._encoder.prepare(text)
        return PreparedDocument(prepared, self._on_device.plan(text, prepared) if self._on_device else None)

    def run(self, group: Sequence[PreparedDocument]) -> list[DocumentVectors | list[TokenVectors]]:
        """Return the centroids of each document, or its windows in main memory; no windows if it has no token.

        If the device fails, for example because its memory is full, a warning is logged, and from then on
        centroids are computed in main memory.
        """
        if self._on_device is not None:
            try:
                return self._represent(self._on_device, group)
            except RuntimeError as error:
                _log.warning("centroids are computed in main memory, because the device failed: %s", error)
                self._on_device = None
        return [*self._encoder.run([each.text for each in group])]

    def _represent(
        self, device: DeviceRepresentation, group: Sequence[PreparedDocument]
    ) -> list[DocumentVectors | list[TokenVectors]]:
        texts = [each.text for each in group if each.text.bounds]
        plans = [each.pieces for each in group if each.text.bounds]
        if not texts:
            return [[] for _ in group]
        vectors = self._encoder.run_on_device(texts)
        found = iter(device.represent(vectors, texts, plans, self._encoder.normalize))
        return [next(found) if each.text.bounds else [] for each in group]


class EncodedDocuments:
    """An iterator over encoded documents in their order, and a context manager that ends all work on them.

    Each document is encoded on one thread, or many together if the encoder prefers batches.

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
            InvalidDocument: a document cannot be encoded; the next call continues after it.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `documents` raised, after all documents before it.
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
        """Start three stages: the tokenizer works ahead of the encoder, representation and analysis behind it."""
        groups = DocumentGroups(encoder, how.representation)

        def prepare(document: Document) -> _Prepared:
            try:
                return document, groups.prepare(document.full_text)
            except InvalidDocument as error:  # raised in the document's turn
                return document, error

        def finish(item: _Encoded) -> EncodedDocument:
            (document, prepared), found = item
            with _document_named(document):
                if isinstance(prepared, InvalidDocument):
                    raise prepared
                vectors = found if isinstance(found, DocumentVectors) else how.represent(document, found)
                return how.finish(document, vectors, prepared.text.n_tokens)

        prepared = self._ahead(documents, prepare, 2 * _GROUP)
        return self._ahead(_run_in_groups(prepared, groups), finish, _GROUP)


def _run_in_groups(prepared: Iterator[Future[_Prepared]], groups: DocumentGroups) -> Iterator[_Encoded]:
    """Yield documents with the results of their groups; an error of `prepared` is raised after all of them."""
    failures: list[Exception] = []
    for group in _grouped(_until_failure(map(result_of, prepared), failures)):
        with in_progress:
            found = iter(groups.run([each for _, each in group if isinstance(each, PreparedDocument)]))
        for document, each in group:
            yield (document, each), next(found) if isinstance(each, PreparedDocument) else []
    for failure in failures:
        raise failure


def _grouped(items: Iterable[_Prepared]) -> Iterator[list[_Prepared]]:
    """Yield documents to be encoded together, so that their token vectors take bounded memory."""
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
def _document_named(document: Document) -> Iterator[None]:
    """Put the name of the document in front of the message of an error."""
    try:
        yield
    except InvalidDocument as error:
        name = document.origin or f"document {document.id!r}"
        message = f"{name}: {error.message}"
        raise InvalidDocument(message, expected=error.expected, actual=error.actual) from error


def _until_failure(items: Iterable[T], failures: list[Exception]) -> Iterator[T]:
    """Yield the items up to the first error, which is appended to `failures`."""
    try:
        yield from items
    except Exception as error:  # raised again later
        failures.append(error)


class _CountedWindows:
    """Windows that are passed on, their tokens counted."""

    def __init__(self, windows: Iterable[TokenVectors]) -> None:
        self._windows = windows
        self.n_tokens = 0

    def __iter__(self) -> Iterator[TokenVectors]:
        for window in self._windows:
            self.n_tokens += len(window.values)
            yield window
