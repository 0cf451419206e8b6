"""Documents to vectors on several threads, in order, with a bounded number of documents under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from engine.analysis import Analyzer
from engine.documents import Document
from engine.encoder import Encoder
from engine.representation import DocumentVectors, Representation
from engine.token_vectors import TokenVectors
from formats.errors import InvalidDocument

__all__ = ["EncodedDocument", "OnInvalid", "encode_documents"]

OnInvalid = Callable[[InvalidDocument], None]
"""What is told of a document that is left out; it may raise."""

_AHEAD = 8  # documents under way for each thread
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
        windows = _Counted(self.encoder.windows(document.full_text))
        try:
            vectors = self.representation.represent(document.full_text, windows, self.encoder.normalise)
        except InvalidDocument as error:
            raise InvalidDocument(
                f"document {document.id!r}: {error.message}", expected=error.expected, actual=error.actual
            ) from error
        fits = vectors.values.shape[1:] == (self.encoder.dim,)
        if not fits or not (np.abs(vectors.values) <= _LARGEST).all():
            raise InvalidDocument(
                f"document {document.id!r}: the encoder gave no usable vectors",
                expected=f"numbers up to {_LARGEST}, {self.encoder.dim} a vector",
                actual=f"shape {vectors.values.shape}",
            )
        return EncodedDocument(document, vectors, self.analyzer.terms(document.full_text), windows.n_tokens)


def encode_documents(
    documents: Iterable[Document],
    how: DocumentEncoder,
    threads: int,
    on_invalid: OnInvalid | None = None,
) -> Iterator[EncodedDocument]:
    """Encode documents, each on one thread, and yield them in order.

    Where `documents` raises, all that came before is yielded first.

    Args:
        documents: what to encode.
        how: what with.
        threads: how many to use.
        on_invalid: called for a document that cannot be encoded, which is then left out; None: raise.

    Raises:
        InvalidDocument: a document has no token, or its vectors are not finite.
    """
    for future in _futures(documents, how, threads):
        try:
            encoded = future.result()
        except InvalidDocument as error:
            if on_invalid is None:
                raise
            on_invalid(error)
        else:
            yield encoded


def _futures(
    documents: Iterable[Document], how: DocumentEncoder, threads: int
) -> Iterator[Future[EncodedDocument]]:
    """The documents being encoded, in order; those under way are bounded by `threads`."""
    failures: list[Exception] = []
    with ThreadPoolExecutor(threads, thread_name_prefix="quarry-encode") as pool:
        waiting: deque[Future[EncodedDocument]] = deque()
        try:
            for document in _until_failure(documents, failures):
                waiting.append(pool.submit(how.encode, document))
                if len(waiting) >= threads * _AHEAD:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for future in waiting:
                future.cancel()
    for failure in failures:
        raise failure


def _until_failure(documents: Iterable[Document], failures: list[Exception]) -> Iterator[Document]:
    """The documents up to the first error, which is put into `failures`."""
    try:
        yield from documents
    except Exception as error:  # whatever it is, it is raised again in its turn
        failures.append(error)


class _Counted:
    """Windows on their way to a representation, their tokens counted."""

    def __init__(self, windows: Iterator[TokenVectors]) -> None:
        self._windows = windows
        self.n_tokens = 0

    def __iter__(self) -> Iterator[TokenVectors]:
        for window in self._windows:
            self.n_tokens += len(window.values)
            yield window
