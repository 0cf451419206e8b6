"""Documents to vectors on several threads, in order, with a bounded number of documents under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from engine.documents import Document
from engine.encoder import Encoder
from engine.representation import DocumentVectors, Representation
from engine.token_vectors import TokenVectors
from formats.errors import InvalidDocument

__all__ = ["EncodedDocument", "encode_documents"]

_AHEAD = 8  # documents under way for each thread


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document with its vectors.

    Attributes:
        document: as it came.
        vectors: its centroids and the spans behind them.
        n_tokens: tokens that were encoded, special ones left out.
    """

    document: Document
    vectors: DocumentVectors
    n_tokens: int


def encode_documents(
    documents: Iterable[Document], encoder: Encoder, representation: Representation, threads: int
) -> Iterator[EncodedDocument]:
    """Encode documents, each on one thread, and yield them in order.

    Raises:
        InvalidDocument: a document has no token, or its vectors are not finite.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="quarry-encode") as pool:
        waiting: deque[Future[EncodedDocument]] = deque()
        try:
            for document in documents:
                waiting.append(pool.submit(_encode, document, encoder, representation))
                if len(waiting) >= threads * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _encode(document: Document, encoder: Encoder, representation: Representation) -> EncodedDocument:
    windows = _Counted(encoder.windows(document.full_text))
    try:
        vectors = representation.represent(document.full_text, windows, encoder.normalise)
    except InvalidDocument as error:
        raise InvalidDocument(
            f"document {document.id!r}: {error.message}", expected=error.expected, actual=error.actual
        ) from error
    if vectors.values.shape[1:] != (encoder.dim,) or not np.isfinite(vectors.values).all():
        raise InvalidDocument(
            f"document {document.id!r}: the encoder gave no usable vectors",
            expected=f"finite numbers, {encoder.dim} a vector",
            actual=f"shape {vectors.values.shape}",
        )
    return EncodedDocument(document, vectors, windows.n_tokens)


class _Counted:
    """Windows on their way to a representation, their tokens counted."""

    def __init__(self, windows: Iterator[TokenVectors]) -> None:
        self._windows = windows
        self.n_tokens = 0

    def __iter__(self) -> Iterator[TokenVectors]:
        for window in self._windows:
            self.n_tokens += len(window.values)
            yield window
