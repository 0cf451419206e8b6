"""Documents encoded together: divided into batches, and joined again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from quarry.engine.documents.document import Document
from quarry.engine.encoding.batch_encoder import BatchEncoder, BatchLimits, DeviceBatchEncoder, PreparedInputs
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.process.exit_gate import in_progress
from quarry.engine.process.worker_pool import PoolClosed
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.pieces import TextPieces
from quarry.formats.errors import InvalidDocument

if TYPE_CHECKING:
    from quarry.engine.representation.on_device import DeviceRepresentation

__all__ = [
    "Batch",
    "BatchItem",
    "DocumentGroups",
    "EncodedItem",
    "PreparedDocument",
    "PreparedItem",
    "divide_into_batches",
    "join_documents",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document, or a part of one, ready for an encoder that works in batches.

    Attributes:
        text: its inputs.
        pieces: where it is cut, if that is needed on the device.
    """

    text: Any  # PreparedInputs of the encoder
    pieces: TextPieces | None


PreparedItem = tuple[Document, "PreparedDocument | InvalidDocument"]
"""A document, and its inputs or why it cannot be encoded."""

EncodedItem = tuple[PreparedItem, "DocumentVectors | list[TokenVectors]"]
"""A prepared document with its centroids or its windows; no windows if it has no token."""


@dataclass(frozen=True, slots=True)
class BatchItem:
    """The part of a document that is in one batch.

    Attributes:
        item: the document.
        part: the inputs that are in this batch; None if the document cannot be encoded.
        is_last: whether all inputs of the document are in this batch or in earlier ones.
    """

    item: PreparedItem
    part: PreparedDocument | None
    is_last: bool


Batch = list[BatchItem]


class DocumentGroups:
    """Encodes groups of documents with a `BatchEncoder`; computes their centroids on its device if possible."""

    def __init__(self, encoder: BatchEncoder[Any, Any], representation: Representation) -> None:
        self._encoder = encoder
        self._on_device: tuple[DeviceBatchEncoder, DeviceRepresentation] | None = None
        if isinstance(encoder, DeviceBatchEncoder) and "token" in encoder.vector_kinds:
            from quarry.engine.representation.on_device import device_representation

            found = device_representation(representation)
            self._on_device = (encoder, found) if found else None

    def prepare(self, text: str) -> PreparedDocument:
        """Cut a document into inputs; safe to call from several threads.

        Raises:
            InvalidDocument: the text has a lone surrogate; the message names its position.
        """
        prepared, on_device = self._encoder.prepare(text), self._on_device
        return PreparedDocument(prepared, on_device[1].plan(text, prepared) if on_device else None)

    def encode(self, batch: Batch) -> tuple[Batch, list[DocumentVectors | list[TokenVectors]]]:
        """Return a batch, and the centroids or windows of each part in it."""
        with in_progress:
            found = iter(self.run([each.part for each in batch if each.part is not None]))
        return batch, [[] if each.part is None else next(found) for each in batch]

    def run(self, group: Sequence[PreparedDocument]) -> list[DocumentVectors | list[TokenVectors]]:
        """Return the centroids of each document, or its windows in main memory; no windows if it has no token.

        If the device fails, for example because its memory is full, a warning is logged, and from then on
        centroids are computed in main memory.
        """
        if self._on_device is not None:
            try:
                return self._represent(*self._on_device, group)
            except RuntimeError as error:
                _log.warning("centroids are computed in main memory, because the device failed: %s", error)
                self._on_device = None
        return [*self._encoder.run([each.text for each in group])]

    def _represent(
        self, encoder: DeviceBatchEncoder, device: DeviceRepresentation, group: Sequence[PreparedDocument]
    ) -> list[DocumentVectors | list[TokenVectors]]:
        texts = [each.text for each in group if each.text.n_inputs]
        plans = [each.pieces for each in group if each.text.n_inputs]
        if not texts:
            return [[] for _ in group]
        vectors = encoder.run_on_device(texts)
        found = iter(device.represent(vectors, texts, plans, self._encoder.normalize))
        return [next(found) if each.text.n_inputs else [] for each in group]


def divide_into_batches(items: Iterable[PreparedItem], limits: BatchLimits) -> Iterator[Batch]:
    """Yield documents in batches, in their order.

    With `BatchLimits.inputs`, every batch but the last has exactly so many, because documents are divided.
    Otherwise a batch ends with the document with which it reaches the number of documents or of tokens.

    Raises:
        Exception: what `items` raised, after a batch of all documents before it; `PoolClosed` at once.
    """
    failures: list[Exception] = []
    batch = _OpenBatch(limits)
    for item in _until_failure(items, failures):
        yield from batch.add(item)
    if batch.items:
        yield batch.items
    for failure in failures:
        raise failure


class _OpenBatch:
    """A batch that is being filled."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self.items: Batch = []
        self._n_tokens = self._n_inputs = 0

    def add(self, item: PreparedItem) -> Iterator[Batch]:
        """Add a document; yield the batches that it completes."""
        prepared = item[1]
        if isinstance(prepared, InvalidDocument):
            self.items.append(BatchItem(item, None, is_last=True))
        elif self._limits.inputs is None:
            self.items.append(BatchItem(item, prepared, is_last=True))
            self._n_tokens += prepared.text.n_tokens
        else:
            yield from self._divide(item, prepared, self._limits.inputs)
            return
        tokens = self._limits.tokens
        is_full = self._limits.inputs is None and len(self.items) >= self._limits.documents
        if is_full or (tokens is not None and self._n_tokens >= tokens):
            yield self._taken()

    def _divide(self, item: PreparedItem, prepared: PreparedDocument, n_inputs: int) -> Iterator[Batch]:
        inputs: PreparedInputs = prepared.text
        first, n_all = 0, inputs.n_inputs
        while True:
            stop = min(n_all, first + n_inputs - self._n_inputs)
            part = PreparedDocument(inputs.part(first, stop), None)
            self.items.append(BatchItem(item, part, is_last=stop == n_all))
            self._n_inputs += stop - first
            if self._n_inputs == n_inputs:
                yield self._taken()
            if stop == n_all:
                return
            first = stop

    def _taken(self) -> Batch:
        taken, self.items = self.items, []
        self._n_tokens = self._n_inputs = 0
        return taken


def join_documents(
    batches: Iterable[tuple[Batch, Sequence[DocumentVectors | list[TokenVectors]]]],
) -> Iterator[EncodedItem]:
    """Yield each document of encoded batches once its last part is encoded, in their order."""
    windows: list[TokenVectors] = []
    for batch, results in batches:
        for each, found in zip(batch, results, strict=True):
            if isinstance(found, DocumentVectors):
                yield each.item, found
                continue
            windows += found
            if each.is_last:
                yield each.item, windows
                windows = []


def _until_failure(items: Iterable[T], failures: list[Exception]) -> Iterator[T]:
    """Yield the items up to the first error, which is appended to `failures`."""
    try:
        yield from items
    except PoolClosed:
        raise
    except Exception as error:  # raised again later
        failures.append(error)
