"""Columns of documents with vectors, to batches: slices of the columns, prepared on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import full_text
from quarry.engine.documents.tables.document_columns import DocumentColumns
from quarry.engine.indexer.batches.encoded_batch import EncodedBatch
from quarry.engine.process.worker_pool import WorkAhead, WorkerPool, result_of
from quarry.engine.scoring.metric import Metric
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.documents.spans import pack_spans

__all__ = ["ColumnBatches"]

_ROWS = 4096  # of a batch at most,
_NUMBERS = 1 << 21  # with about so many numbers,
_CHARACTERS = 1 << 20  # and characters of text
_MAX_VALUE = 65504  # of float16, one of the types that vectors are stored as
_NO_METADATA = PackedMetadata.of({})


class ColumnBatches:
    """Passes columns on as batches, in their order."""

    def __init__(self, columns: DocumentColumns, analyzer: Analyzer, metric: Metric, pool: WorkerPool) -> None:
        self._columns = columns
        self._analyzer = analyzer
        self._metric = metric
        self._pool = pool

    def pass_on(self, take: Callable[[EncodedBatch], object]) -> None:
        """Call `take` with each batch.

        Raises:
            InvalidDocument: the metric makes numbers of a vector that are too large to be stored.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `take` raised.
        """
        with WorkAhead(self._pool, self._bounds(), self._encode, 2 * self._pool.threads) as futures:
            for future in futures:
                take(result_of(future))

    def _bounds(self) -> Iterator[tuple[int, int]]:
        """Yield the first row of each batch, and the one after its last."""
        columns = self._columns
        assert columns.vectors is not None
        n_each = max(1, min(_ROWS, _NUMBERS // max(1, columns.vectors[:1].size)))
        low = 0
        while low < len(columns):
            high = min(low + n_each, len(columns))
            if columns.texts is not None:
                lengths = np.cumsum([len(text) for text in columns.texts[low:high]])
                high = low + max(1, int(np.searchsorted(lengths, _CHARACTERS)))
                high = min(high, len(columns), low + n_each)
            yield low, high
            low = high

    def _encode(self, bounds: tuple[int, int]) -> EncodedBatch:
        low, high = bounds
        columns, n_docs = self._columns, high - low
        assert columns.vectors is not None
        given = columns.vectors[low:high]
        n_each = given.shape[1] if given.ndim == 3 else 1
        rows = self._metric.rows(np.ascontiguousarray(given, np.float32).reshape(n_docs * n_each, -1))
        texts = columns.texts[low:high] if columns.texts else [""] * n_docs
        titles = columns.titles[low:high] if columns.titles else [""] * n_docs
        whole = [full_text(*pair) for pair in zip(titles, texts, strict=True)] if columns.titles else texts
        has_texts = columns.texts is not None or columns.titles is not None
        return EncodedBatch(
            columns.ids[low:high],
            titles,
            texts,
            columns.metadata[low:high] if columns.metadata else [_NO_METADATA] * n_docs,
            rows,
            np.full(n_docs, n_each),
            _spans(whole, n_each) if has_texts else [pack_spans([()] * n_each)] * n_docs,
            [self._analyzer.terms(text) for text in whole] if has_texts else [()] * n_docs,
        ).round(self._metric.stored_as)


def _spans(texts: list[str], n_each: int) -> list[bytes]:
    """Return the packed spans of documents of which each vector stands for the whole text."""
    return [pack_spans([((0, len(text)),) if text else ()] * n_each) for text in texts]
