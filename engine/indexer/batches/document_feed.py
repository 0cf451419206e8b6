"""Documents to batches of encoded documents: given vectors are checked, all others are encoded, in one order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.document_encoder import (
    DocumentEncoder,
    EncodedDocument,
    EncodedDocuments,
    OnInvalid,
)
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.indexer.batches.given_documents import GivenDocumentEncoder
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of
from quarry.engine.scoring.metric import Metric
from quarry.formats.errors import EncodingFailed, InvalidDocument

__all__ = ["DocumentFeed"]

# A chunk ends at the first of these limits.
_DOCUMENTS = 256
_CHARACTERS = 1 << 20  # of their texts
_NUMBERS = 1 << 20  # in their vectors
_ENCODED = 64  # documents of an encoder in a batch

Take = Callable[[EncodedBatch], object]


class DocumentFeed:
    """Reads documents and passes them on as batches, in their order.

    Documents that come with vectors are prepared in chunks, several at a time, up to the first one without
    vectors. From there on documents are encoded as the encoder wants them, until a whole chunk has vectors.

    Args:
        documents: what to encode.
        how: what to encode with.
        metric: of the index.
        pool: whose threads to use.
        on_invalid: called for each document that cannot be stored, which is then left out; None: raise.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        how: DocumentEncoder,
        metric: Metric,
        pool: WorkerPool,
        on_invalid: OnInvalid | None = None,
    ) -> None:
        self._how = how
        self._metric = metric
        self._given = GivenDocumentEncoder(how.analyzer, metric)
        self._pool = pool
        self._on_invalid = on_invalid
        self._failure: Exception | None = None
        self._documents = self._read(documents)
        self._next: Document | None = None
        self._waiting: deque[Document] = deque()  # documents read while others are encoded

    def pass_on(self, take: Take) -> None:
        """Call `take` with each batch.

        Raises:
            InvalidDocument: a document cannot be stored; those before it were passed on.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `documents` raised, after all documents before it; or what `take` raised.
        """
        self._next = next(self._documents, None)
        while self._next is not None:
            if self._next.vectors is None:
                self._pass_encoded(take)
            else:
                self._pass_given(take)
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # the error holds this frame, which must not hold the error

    def _read(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield documents; an error is kept until all documents before it are done."""
        try:
            yield from documents
        except Exception as error:  # raised after the documents before it
            self._failure = error

    def _pass_given(self, take: Take) -> None:
        with WorkAhead(self._pool, self._chunks(), self._given.encode, 2 * self._pool.threads) as futures:
            for future in futures:
                self._pass_valid(result_of(future), take)

    def _chunks(self) -> Iterator[list[Document]]:
        """Yield chunks of the following documents, up to the first one without vectors."""
        chunk: list[Document] = []
        size = 0.0
        while self._next is not None and self._next.vectors is not None:
            chunk.append(self._next)
            size += len(self._next.text) / _CHARACTERS + self._next.vectors.size / _NUMBERS
            self._next = next(self._documents, None)
            if len(chunk) >= _DOCUMENTS or size >= 1:
                yield chunk
                chunk, size = [], 0.0
        if chunk:
            yield chunk

    def _pass_valid(self, found: Sequence[EncodedBatch | InvalidDocument], take: Take) -> None:
        for each in found:
            if isinstance(each, EncodedBatch):
                take(each)
            elif self._on_invalid is None:
                raise each
            else:
                self._on_invalid(each)

    def _pass_encoded(self, take: Take) -> None:
        """Encode documents; those among them that have vectors wait for their turn."""
        batch: list[EncodedDocument] = []
        with EncodedDocuments(self._without_vectors(), self._how, self._pool, self._on_invalid) as encoded:
            try:
                for each in encoded:
                    self._pass_waiting(each.document, batch, take)
                    batch.append(each)
                    if len(batch) >= _ENCODED:
                        self._flush(batch, take)
            except (InvalidDocument, KeyboardInterrupt):
                self._pass_before_failure(batch, take)
                raise
            except EncodingFailed as error:
                following = self._pass_before_failure(batch, take)
                error.documents = (*error.documents[:1], *following)
                raise
        self._pass_waiting(None, batch, take)
        self._flush(batch, take)

    def _pass_before_failure(self, batch: list[EncodedDocument], take: Take) -> list[Document]:
        """Pass on all documents before the first one that waits without vectors; return those that follow it."""
        failed = next((each for each in self._waiting if each.vectors is None), None)
        self._pass_waiting(failed, batch, take)
        self._flush(batch, take)
        return [*self._waiting]

    def _without_vectors(self) -> Iterator[Document]:
        """Yield the following documents that have no vectors, until a chunk in a row has some."""
        n_given = 0
        while self._next is not None and n_given < _DOCUMENTS:
            document, self._next = self._next, None
            self._waiting.append(document)
            if document.vectors is None:
                n_given = 0
                yield document
            else:
                n_given += 1
            self._next = next(self._documents, None)

    def _pass_waiting(self, until: Document | None, batch: list[EncodedDocument], take: Take) -> None:
        """Pass on the waiting documents with vectors before another document; None: all."""
        given: list[Document] = []
        while self._waiting:
            document = self._waiting.popleft()
            if document is until:
                break
            if document.vectors is not None:  # others cannot be encoded, and are left out
                given.append(document)
        if given:
            self._flush(batch, take)
            self._pass_valid(self._given.encode(given), take)

    def _flush(self, batch: list[EncodedDocument], take: Take) -> None:
        """Pass on documents that were encoded, and empty the list."""
        if batch:
            encoded, batch[:] = batch[:], []
            take(EncodedBatch.of(encoded, self._metric))
