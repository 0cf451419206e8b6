"""Documents to batches of encoded documents: given vectors are checked, all others are encoded, in one order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from quarry.engine.documents.document import Document
from quarry.engine.indexer.document_encoder import (
    DocumentEncoder,
    EncodedDocument,
    EncodedDocuments,
    OnInvalid,
)
from quarry.engine.indexer.encoded_batch import EncodedBatch
from quarry.engine.indexer.given_documents import GivenDocumentEncoder
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of
from quarry.engine.scoring.metric import Metric
from quarry.formats.errors import InvalidDocument

__all__ = ["DocumentBatches"]

_DOCUMENTS = 256  # in a chunk,
_CHARACTERS = 1 << 20  # or fewer if their texts are so long together,
_NUMBERS = 1 << 20  # or their vectors have so many numbers
_ENCODED = 64  # documents of an encoder in a batch

Take = Callable[[EncodedBatch], object]


class DocumentBatches:
    """Reads documents in chunks and passes them on as batches, in their order.

    Chunks of documents that all come with vectors are prepared as wholes, several at a time. From a chunk on that
    has a document without vectors, documents are encoded until there is a chunk with vectors alone again.

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
        self._chunks = self._read(documents)
        self._next: list[Document] | None = None
        self._waiting: deque[Document] = deque()  # documents read while others are encoded

    def pass_on(self, take: Take) -> None:
        """Call `take` with each batch.

        Raises:
            InvalidDocument: a document cannot be stored; those before it were passed on.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `documents` raised, after all documents before it; or what `take` raised.
        """
        self._next = next(self._chunks, None)
        while self._next is not None:
            if _are_given(self._next):
                self._pass_given(take)
            else:
                self._pass_encoded(take)
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # the error holds this frame, which must not hold the error

    def _read(self, documents: Iterable[Document]) -> Iterator[list[Document]]:
        """Yield chunks of documents; an error is kept until all documents before it are done."""
        chunk: list[Document] = []
        size = 0.0
        try:
            for document in documents:
                chunk.append(document)
                n_numbers = 0 if document.vectors is None else document.vectors.size
                size += len(document.text) / _CHARACTERS + n_numbers / _NUMBERS
                if len(chunk) >= _DOCUMENTS or size >= 1:
                    yield chunk
                    chunk, size = [], 0.0
        except Exception as error:  # raised in its turn
            self._failure = error
        if chunk:
            yield chunk

    def _chunks_with(self, *, vectors_only: bool) -> Iterator[list[Document]]:
        """Yield the following chunks while all their documents have vectors, or while each has one without."""
        while self._next is not None and _are_given(self._next) == vectors_only:
            chunk = self._next
            self._next = next(self._chunks, None)
            yield chunk

    def _pass_given(self, take: Take) -> None:
        chunks = self._chunks_with(vectors_only=True)
        with WorkAhead(self._pool, chunks, self._given.encode, 2 * self._pool.threads) as futures:
            for future in futures:
                self._pass_valid(result_of(future), take)

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
                    if given := self._given_before(each.document):
                        self._flush(batch, take)
                        self._pass_valid(self._given.encode(given), take)
                    batch.append(each)
                    if len(batch) >= _ENCODED:
                        self._flush(batch, take)
            except InvalidDocument:
                self._flush(batch, take)
                raise
        self._flush(batch, take)
        if given := self._given_before(None):
            self._pass_valid(self._given.encode(given), take)

    def _without_vectors(self) -> Iterator[Document]:
        for chunk in self._chunks_with(vectors_only=False):
            for document in chunk:
                self._waiting.append(document)
                if document.vectors is None:
                    yield document

    def _given_before(self, encoded: Document | None) -> list[Document]:
        """Return the waiting documents with vectors before one that was encoded; None: all."""
        given: list[Document] = []
        while self._waiting:
            document = self._waiting.popleft()
            if document is encoded:
                break
            if document.vectors is not None:  # others cannot be encoded, and are left out
                given.append(document)
        return given

    def _flush(self, batch: list[EncodedDocument], take: Take) -> None:
        """Pass on documents that were encoded, and empty the list."""
        if batch:
            encoded, batch[:] = batch[:], []
            take(EncodedBatch.of(encoded, self._metric))


def _are_given(chunk: Sequence[Document]) -> bool:
    return all(document.vectors is not None for document in chunk)
