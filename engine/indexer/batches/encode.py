"""Documents to encoded batches: several threads work a bounded number of chunks ahead, and results come in order.

`DocumentEncoder` encodes texts, checks given vectors and takes columns of a table. `EncodedBatches` divides a
stream of documents into chunks, lets the threads encode them, and makes batches of the results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat, starmap
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document, full_text, passage_text, repeated_title, searchable_texts
from quarry.engine.documents.file_place import heading_starts
from quarry.engine.documents.given_vectors import divide_by_spans
from quarry.engine.documents.tables.document_columns import DocumentColumns
from quarry.engine.encoding.batch_encoder import BatchEncoder, as_batch_encoder
from quarry.engine.encoding.encoder import Encoder, TokenVectors
from quarry.engine.encoding.passages import cut_into_passages
from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.batches.calls import (
    Chunk,
    DocumentGroups,
    Part,
    PartVectors,
    divide_into_calls,
    join_parts,
)
from quarry.engine.process.worker_pool import PoolClosed, WorkAhead, WorkerPool, result_of
from quarry.engine.representation.base import DocumentVectors, NoTokens, Representation, Spans
from quarry.engine.representation.registry import encoder_of_documents
from quarry.engine.scoring.metric import Metric
from quarry.formats.arrays import Float32Array
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.documents.spans import pack_spans
from quarry.formats.errors import EncodingFailed, InvalidDocument
from quarry.formats.manifest import IndexSettings, PassageRecord

__all__ = ["DocumentEncoder", "EncodedBatches", "OnInvalid", "column_bounds", "passage_extents"]

OnInvalid = Callable[[InvalidDocument], None]
"""Called for a document that is left out; it may raise."""

T = TypeVar("T")
R = TypeVar("R")

_MAX_VALUE = 65504
"""Largest magnitude of a stored number: that of float16, one of the types that vectors are stored as."""

_AHEAD = 8  # chunks in progress per thread
_DOCUMENTS = 64  # of an encoder in a batch
_GIVEN = 256  # documents with vectors in a chunk, at most
_NUMBERS_AHEAD = 1 << 22  # of given vectors in progress; a chunk is so small that all together have no more
_CHARACTERS_AHEAD = 1 << 22  # of their texts
_ROWS = 4096  # of a batch of columns at most,
_NUMBERS = 1 << 21  # with about so many numbers,
_CHARACTERS = 1 << 20  # and characters of text
_NO_METADATA = PackedMetadata.of({})


class Encoded(NamedTuple):
    """A document, or one passage of it, with its vectors and terms.

    Attributes:
        document: as it was given.
        vectors: its centroids and their spans in the document.
        terms: its terms, repeated as often as they occur.
        n_tokens: number of tokens that were encoded, special tokens excluded.
        extent: (start, end) characters of the passage in the document's full text; None: all of it.
    """

    document: Document
    vectors: DocumentVectors
    terms: list[str]
    n_tokens: int
    extent: tuple[int, int] | None = None


Results = list[Encoded | Batch | InvalidDocument]
"""A document that was encoded, or batches of documents with vectors; errors in place of documents left out."""


@dataclass(frozen=True)
class DocumentEncoder:
    """Makes batches of documents, with vectors as the index stores them; safe to use from several threads."""

    encoder: Encoder
    representation: Representation
    analyzer: Analyzer
    metric: Metric
    settings: IndexSettings

    @cached_property
    def cutter(self) -> Encoder:
        """The encoder with the windows that the representation reads."""
        return encoder_of_documents(self.encoder, self.representation)

    def encode(self, chunk: Chunk) -> Results:
        """Return a passage, or documents that come with vectors, and errors in place of invalid ones.

        A document is invalid if it has no token, or vectors that are not finite, too large to be stored, of the
        wrong length, or without a direction though the metric needs one.
        """
        if chunk.documents[0].vectors is not None:
            return self._check_given(chunk.documents)
        try:
            counted = _CountedWindows(self.cutter.windows(chunk.text))
            vectors = self._represent(chunk.text, counted)
            return [self._finish(chunk, vectors, counted.n_tokens)]
        except InvalidDocument as error:
            return [_named(chunk.documents[0], error)]

    def finish(self, encoded: tuple[Part, PartVectors]) -> Results:
        """Return the documents of an encoder that works in batches; see `encode`."""
        part, output = encoded
        chunk = part.chunk
        if chunk.documents[0].vectors is not None:
            return self._check_given(chunk.documents)
        try:
            if part.inputs is None:
                raise part.error or AssertionError
            vectors = output if isinstance(output, DocumentVectors) else self._represent(chunk.text, output)
            return [self._finish(chunk, vectors, part.inputs.text.n_tokens)]
        except InvalidDocument as error:
            return [_named(chunk.documents[0], error)]

    def batch(self, encoded: Sequence[Sequence[Encoded]]) -> Batch:
        """Return documents that were encoded, at least one, as a batch, given the passages of each."""
        passages = [each for document in encoded for each in document]
        batch = Batch.of(
            [document[0].document for document in encoded],
            self.metric.rows(np.concatenate([each.vectors.values for each in passages])),
            np.array([len(each.vectors.values) for each in passages], np.int64),
            [b"".join(pack_spans(each.vectors.spans) for each in document) for document in encoded],
            [each.terms for each in passages],
            [sum(each.n_tokens for each in document) for document in encoded],
        )
        if len(passages) > len(encoded):
            extents = [(len(document) > 1 and each.extent) or (0, 0) for document in encoded for each in document]
            batch = replace(batch, passages=(np.array([*map(len, encoded)]), np.array(extents, np.uint32)))
        return self._with_fields(batch)

    def encode_columns(self, columns: DocumentColumns, bounds: tuple[int, int]) -> Batch:
        """Return the rows between two bounds of columns that have vectors, which stand for the whole texts.

        Raises:
            InvalidDocument: the metric makes numbers of a vector that are too large to be stored.
        """
        assert columns.vectors is not None
        low, high = bounds
        given, n_docs = columns.vectors[low:high], high - low
        n_each = given.shape[1] if given.ndim == 3 else 1
        texts = columns.texts[low:high] if columns.texts else [""] * n_docs
        titles = columns.titles[low:high] if columns.titles else [""] * n_docs
        whole = [full_text(*pair) for pair in zip(titles, texts, strict=True)] if columns.titles else texts
        no_spans = pack_spans([()] * n_each)
        batch = Batch(
            columns.ids[low:high],
            titles,
            texts,
            columns.metadata[low:high] if columns.metadata else [_NO_METADATA] * n_docs,
            self.metric.rows(np.ascontiguousarray(given, np.float32).reshape(n_docs * n_each, -1)),
            np.full(n_docs, n_each),
            [pack_spans([((0, len(text)),)] * n_each) if text else no_spans for text in whole],
            [self.analyzer.document_terms(text) if text else () for text in whole],
            [0] * n_docs,
        )
        return self._with_fields(batch).round(self.metric.stored_as)

    def _represent(self, text: str, windows: Iterable[TokenVectors]) -> DocumentVectors:
        """Compute the centroids of a text from its windows, which may be encoded as they are read."""
        with np.errstate(over="ignore", invalid="ignore"):  # `_finish` refuses vectors that are not finite
            return self.representation.represent(text, windows, self.encoder.normalize)

    def _finish(self, chunk: Chunk, vectors: DocumentVectors, n_tokens: int) -> Encoded:
        """Return a passage with its centroids, which are checked, and its terms."""
        values, document = vectors.values, chunk.documents[0]
        if values.shape[1:] != (self.encoder.dim,) or not (np.abs(values) <= _MAX_VALUE).all():
            raise InvalidDocument(
                "the encoder gave no usable vectors",
                expected=f"values up to {_MAX_VALUE}, {self.encoder.dim} per vector",
                actual=f"shape {values.shape}",
            )
        if chunk.extent is not None:
            vectors = replace(
                vectors, spans=tuple(_in_document(vectors.spans, repeated_title(document.title), chunk.extent[0]))
            )
        return Encoded(document, vectors, self.analyzer.document_terms(chunk.text), n_tokens, chunk.extent)

    def _check_given(self, documents: Sequence[Document]) -> Results:
        """Return documents with the vectors that they come with, which are checked together."""
        vectors = [each.vectors for each in documents if each.vectors is not None]
        if all(each.shape[1] == self.metric.dim for each in vectors):
            rows = self.metric.rows(np.concatenate(vectors))
            if _are_bounded(rows) and all(map(self._has_directions, documents)):
                return [self._batch_of_given(documents, rows).round(self.metric.stored_as)]
        if len(documents) == 1:
            return [self._find_error(documents[0], vectors[0])]
        return [result for each in documents for result in self._check_given([each])]

    def _batch_of_given(self, documents: Sequence[Document], rows: Float32Array) -> Batch:
        """Return documents with their vectors as a batch, divided into passages by the spans of these."""
        sizes, extents, counts, spans, terms, order = [], [], [], [], [], []  # type: ignore[var-annotated]
        for document in documents:
            full, own = document.full_text, document.spans
            parts, owners = [(0, 0)], [0] * len(own)
            if self.settings.passages is not None:
                parts, owners = divide_by_spans(own, full, len(full) - len(document.text))
            ranked = sorted(range(len(own)), key=owners.__getitem__)
            sizes.append(len(parts))
            extents += parts
            counts += np.bincount(owners).tolist()
            spans.append(pack_spans([(own[number],) if own[number][1] else () for number in ranked]))
            terms += [self.analyzer.document_terms(passage_text(document.title, full, extent)) for extent in parts]
            order += [len(order) + number for number in ranked]
        no_tokens = [0] * len(documents)
        batch = Batch.of(documents, rows, np.array(counts, np.int64), spans, terms, no_tokens)
        if len(extents) > len(documents):
            divided = np.array(sizes), np.array(extents, np.uint32)
            batch = replace(batch, vectors=rows[order], passages=divided)
        return self._with_fields(batch)

    def _with_fields(self, batch: Batch) -> Batch:
        """Return a batch whose passages have the terms of the searchable fields, too, and of weighted ones."""
        if not self.settings.searchable and not self.settings.field_weights:
            return batch
        sizes = [1] * len(batch) if batch.passages is None else batch.passages[0].tolist()
        known = zip(batch.ids, batch.titles, batch.metadata, repeat(self.settings), sizes)
        both = zip(batch.terms, chain.from_iterable(starmap(searchable_texts, known)), strict=True)
        return replace(
            batch,
            terms=[[*own, *self.analyzer.added_terms(own, "\n".join(texts))] for own, texts in both],
        )

    def _has_directions(self, document: Document) -> bool:
        if self.metric.name != "cosine" or document.stored_as == "words":
            return True
        return document.vectors is not None and bool(document.vectors.any(axis=1).all())

    def _find_error(self, document: Document, vectors: Float32Array) -> InvalidDocument:
        """Return why the vectors of a document cannot be stored."""
        if vectors.shape[1] != self.metric.dim:
            expected = f"(n, {self.metric.dim})"
            return _invalid(document, "field 'vectors' has the wrong shape", expected, vectors.shape)
        rows = self.metric.rows(vectors)
        if not _are_bounded(rows):
            expected, largest = f"numbers up to {_MAX_VALUE} as stored", float(np.abs(rows).max())
            return _invalid(document, "field 'vectors' has numbers that are too large", expected, largest)
        row = int((~vectors.any(axis=1)).argmax())
        problem = f"field 'vectors' has a vector of zeros, row {row}"
        return _invalid(document, problem, "a direction, for the metric cosine", None)


class EncodedBatches:
    """An iterator over the batches of documents, in their order, and a context manager that ends all work on them.

    Texts are encoded one at a time on each thread, or many together if the encoder is a `BatchEncoder`. Documents
    that come with vectors are checked in chunks.

    Args:
        documents: what to encode.
        how: what to encode with.
        pool: whose threads to use.
        on_invalid: called for each document that cannot be stored, which is then left out; None: raise.
    """

    def __init__(
        self,
        documents: Iterable[Document],
        how: DocumentEncoder,
        pool: WorkerPool,
        on_invalid: OnInvalid | None = None,
    ) -> None:
        self._how = how
        self._on_invalid = on_invalid
        self._pool = pool
        self._stages = ExitStack()
        self._waiting: deque[Document] = deque()  # read, and not encoded yet
        self._chunks: deque[Chunk] = deque()  # likewise
        self._passages: list[Encoded | InvalidDocument] = []  # of a document that is not complete yet
        self._given: deque[Batch] = deque()  # of documents with vectors, to be returned
        self._failure: BaseException | None = None
        self._futures: Iterator[Future[Results]]
        batched = as_batch_encoder(how.cutter)
        n_ahead = pool.threads * _AHEAD if batched is None else 4 * batched.batch_limits.documents
        chunks = _kept(_divide(_kept(documents, self._waiting), how.settings.passages, n_ahead), self._chunks)
        if batched is None:
            self._futures = self._ahead(chunks, how.encode, n_ahead)
        else:
            self._futures = self._in_calls(chunks, how, batched)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            InvalidDocument: a document cannot be stored; those before it were returned.
            EncodingFailed: an embedding function failed; it has the documents that were read and not returned.
            PoolClosed: the pool was closed meanwhile.
            Exception: what `documents` raised, after all documents before it.
        """
        encoded: list[list[Encoded]] = []
        if not self._given and self._failure is None:
            try:
                self._collect(encoded)
            except PoolClosed:
                raise
            except (Exception, KeyboardInterrupt) as error:  # raised after the documents before it
                self._failure = error
        if encoded:
            return self._how.batch(encoded)
        if self._given:
            return self._given.popleft()
        failure, self._failure = self._failure, None
        try:
            raise failure or StopIteration
        finally:
            del failure  # the error holds this frame, which must not hold the error

    def _collect(self, encoded: list[list[Encoded]]) -> None:
        """Collect the next documents, until there is a batch of encoded ones or one of documents with vectors."""
        while len(encoded) < _DOCUMENTS and not self._given:
            try:
                future = next(self._futures, None)
                if future is None:
                    return
                results = result_of(future)
            except EncodingFailed as error:
                raise _with_documents(error, [*self._waiting]) from error.__cause__
            chunk = self._chunks.popleft()
            for each in results if chunk.extent is None else self._joined(chunk, results):
                for _ in range(len(each) if isinstance(each, Batch) else 1):
                    self._waiting.popleft()
                if isinstance(each, Encoded):
                    encoded.append([each])
                elif isinstance(each, list):
                    encoded.append(each)
                elif isinstance(each, Batch):
                    self._given.append(each)
                elif self._on_invalid is None:
                    raise each
                else:
                    self._on_invalid(each)

    def _joined(self, chunk: Chunk, results: Results) -> list[list[Encoded] | InvalidDocument]:
        """Return the passages of a document with the last of them, or why the document cannot be stored.

        Passages without a token are left out, unless all are; any other error is one of the whole document.
        """
        (passage,) = results
        assert not isinstance(passage, Batch)
        self._passages.append(passage)
        if not chunk.is_last:
            return []
        passages, self._passages = self._passages, []
        encoded = [each for each in passages if isinstance(each, Encoded)]
        errors = [each for each in passages if isinstance(each, InvalidDocument)]
        if encoded:
            errors = [each for each in errors if not isinstance(each.__cause__, NoTokens)]
        return [errors[0] if errors else encoded]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stages.close()

    def _ahead(self, items: Iterable[T], work: Callable[[T], R], n_ahead: int) -> WorkAhead[T, R]:
        return self._stages.enter_context(WorkAhead(self._pool, items, work, n_ahead))

    def _in_calls(
        self, chunks: Iterable[Chunk], how: DocumentEncoder, encoder: BatchEncoder[Any, Any]
    ) -> Iterator[Future[Results]]:
        """Start three stages: documents are prepared ahead of the encoder, represented and analyzed after it."""
        groups = DocumentGroups(encoder, how.representation)
        limits = encoder.batch_limits

        def prepare(chunk: Chunk) -> Part:
            if chunk.documents[0].vectors is not None:
                return Part(chunk, None)
            try:
                return Part(chunk, groups.prepare(chunk.text))
            except InvalidDocument as error:  # reported in the document's turn
                return Part(chunk, None, error)

        prepared = self._ahead(chunks, prepare, 2 * limits.documents)
        calls: Iterable[list[Part]] = divide_into_calls(map(result_of, prepared), limits)
        encoded: Iterable[list[tuple[Part, PartVectors]]]
        if limits.in_flight == 1:
            encoded = map(groups.encode, calls)
        else:  # threads of their own, because calls wait for a service, and work of a pool must not wait for it
            pool = self._stages.enter_context(WorkerPool(limits.in_flight, "quarry-embed"))
            ahead = self._stages.enter_context(WorkAhead(pool, calls, groups.encode, limits.in_flight))
            encoded = map(result_of, ahead)
        return self._ahead(join_parts(encoded), how.finish, limits.documents)


def column_bounds(columns: DocumentColumns) -> Iterator[tuple[int, int]]:
    """Yield the first row of each batch of columns that have vectors, and the one after its last."""
    assert columns.vectors is not None
    n_each = max(1, min(_ROWS, _NUMBERS // max(1, columns.vectors[:1].size)))
    low = 0
    while low < len(columns):
        high = min(low + n_each, len(columns))
        if columns.texts is not None:
            lengths = np.cumsum([len(text) for text in columns.texts[low:high]])
            high = min(high, low + max(1, int(np.searchsorted(lengths, _CHARACTERS))))
        yield low, high
        low = high


def _divide(documents: Iterable[Document], passages: PassageRecord | None, n_ahead: int) -> Iterator[Chunk]:
    """Yield chunks, each of one passage to encode, or of documents with vectors.

    Args:
        documents: what to divide.
        passages: how documents are cut; None: they are not.
        n_ahead: number of chunks that are in memory at once.

    Raises:
        Exception: what `documents` raised, after all documents before it.
    """
    chunk: list[Document] = []
    size = 0.0
    try:
        for document in documents:
            if document.vectors is None:
                if chunk:
                    yield Chunk(chunk)
                chunk, size = [], 0.0
                yield from _passages_of(document, passages)
                continue
            chunk.append(document)
            size += len(document.text) / _CHARACTERS_AHEAD + document.vectors.size / _NUMBERS_AHEAD
            if len(chunk) >= _GIVEN or size * n_ahead >= 1:
                yield Chunk(chunk)
                chunk, size = [], 0.0
    except Exception:
        if chunk:
            yield Chunk(chunk)
        raise
    if chunk:
        yield Chunk(chunk)


def _passages_of(document: Document, passages: PassageRecord | None) -> Iterator[Chunk]:
    """Yield the passages of a document."""
    extents = passage_extents(document, passages)
    for number, extent in enumerate(extents, 1):
        yield Chunk([document], extent if len(extents) > 1 else None, number == len(extents))


def passage_extents(document: Document, passages: PassageRecord | None) -> list[tuple[int, int]]:
    """Return (start, end) characters of the passages of a document in its full text; the first has the title."""
    n_before = len(document.full_text) - len(document.text)
    bounds = [(0, len(document.text))]
    if passages is not None and len(document.text) > passages.max_words:  # a word has at least one character
        bounds = cut_into_passages(document.text, passages, heading_starts(document))
    return [(start + n_before if start else 0, end + n_before) for start, end in bounds]


def _in_document(spans: Sequence[Spans], title: str, start: int) -> list[Spans]:
    """Return the spans of a passage's vectors in the full text of its document.

    The repeated title in front of the passage is where the document begins; spans of both together lose it.
    """
    if start == 0:
        return list(spans)
    n_before = len(title) + 1 if title else 0
    return [
        tuple(
            (max(low, n_before) - n_before + start, high - n_before + start)
            for low, high in each
            if high > n_before
        )
        or each
        for each in spans
    ]


def _kept(items: Iterable[T], waiting: deque[T]) -> Iterator[T]:
    """Yield items, each after it was appended to `waiting`."""
    for item in items:
        waiting.append(item)
        yield item


def _are_bounded(rows: Float32Array) -> bool:
    return not rows.size or bool(max(rows.max(), -rows.min()) <= _MAX_VALUE)  # false for NaN


def _invalid(document: Document, problem: str, expected: object, actual: object) -> InvalidDocument:
    name = document.origin or f"document {document.id!r}"
    return InvalidDocument(f"{name}: {problem}", expected=expected, actual=actual)


def _named(document: Document, error: InvalidDocument) -> InvalidDocument:
    """Return an error with the name of the document in front of its message."""
    named = _invalid(document, error.message, error.expected, error.actual)
    named.__cause__ = error
    return named


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
