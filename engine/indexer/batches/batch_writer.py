"""Documents to an index or its shards: encoded on several threads, and collected in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from quarry.engine.documents.document import Document
from quarry.engine.documents.tables.document_columns import DocumentColumns
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.indexer.batches.column_batches import ColumnBatches
from quarry.engine.indexer.batches.document_encoder import DocumentEncoder, OnInvalid
from quarry.engine.indexer.batches.document_feed import DocumentFeed
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.indexer.batches.stored_type import N_SAMPLED, choose_storage, column_sample, read_given_sample
from quarry.engine.process.worker_pool import PoolClosed, WorkerPool
from quarry.engine.scoring.metric import Metric
from quarry.formats.errors import IndexClosed

__all__ = ["BatchWriter"]


class BatchWriter(ABC):
    """Collects documents for a commit. Several threads may add documents at once."""

    def __init__(self, threads: int) -> None:
        self._pool = WorkerPool(threads, "quarry-encode")

    def add(self, documents: Iterable[Document], on_invalid: OnInvalid | None = None) -> int:
        """Encode and collect documents, and return their number; a document replaces one with the same id.

        Args:
            documents: what to add.
            on_invalid: called for each document that cannot be encoded, which is then left out; None: raise.

        Raises:
            InvalidDocument: a document cannot be indexed; those before it are collected.
            IndexClosed: this writer is closed, or another thread closed it meanwhile.
            CommitFailed: an I/O error occurred; the documents until then are collected.
        """
        self.check_open()
        how, n_taken = self.document_encoder, 0

        def take(batch: EncodedBatch) -> None:
            nonlocal n_taken
            if self.chooses_storage and not isinstance(how.encoder, NoEncoder):
                chosen = choose_storage(self.metric, self.metric.vectors(batch.vectors[:N_SAMPLED]))
                self.fix_storage(replace(chosen, mean=None))  # no mean was subtracted from this batch
            self.add_batch(batch, how.encoder)
            n_taken += len(batch)

        documents = self.choose_storage(documents)
        with self._closed_error():
            DocumentFeed(documents, how, self.metric, self._pool, on_invalid).pass_on(take)
        return n_taken

    def choose_storage(self, documents: Iterable[Document]) -> Iterable[Document]:
        """Fix how a new index stores vectors, by those that documents came with; return all documents."""
        if not (self.chooses_storage and isinstance(self.document_encoder.encoder, NoEncoder)):
            return documents
        vectors, documents = read_given_sample(documents, self.metric.dim)
        self.fix_storage(choose_storage(self.metric, vectors))
        return documents

    def add_columns(self, columns: DocumentColumns) -> int:
        """Collect documents with vectors, given as columns, and return their number; see `add`."""
        self.check_open()
        if self.chooses_storage:
            self.fix_storage(choose_storage(self.metric, column_sample(columns, self.metric.dim)))
        with self._closed_error():
            ColumnBatches(columns, self.document_encoder.analyzer, self.metric, self._pool).pass_on(self.add_batch)
        return len(columns)

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """The metric of the index."""

    @property
    @abstractmethod
    def document_encoder(self) -> DocumentEncoder:
        """The encoder of the documents of the index."""

    @property
    @abstractmethod
    def chooses_storage(self) -> bool:
        """Whether the first documents decide how vectors are stored; false once there are some."""

    @abstractmethod
    def fix_storage(self, metric: Metric) -> None:
        """Fix the type of stored vectors, and what is subtracted from them, as long as there are no documents."""

    @abstractmethod
    def add_batch(self, batch: EncodedBatch, encoder: Encoder | None = None) -> None:
        """Collect documents that are encoded already; see `add`.

        Args:
            batch: the documents.
            encoder: what their vectors were made with; None: they came with vectors.
        """

    @abstractmethod
    def check_open(self) -> None:
        """Raise IndexClosed if this writer is closed, or cannot go on after an error."""

    @contextmanager
    def _closed_error(self) -> Iterator[None]:
        """Raise IndexClosed if `close` on another thread ended the threads."""
        try:
            yield
        except PoolClosed:
            self.check_open()
            raise IndexClosed("this writer is closed") from None
