"""Passages for an encoder that takes many texts in one call: divided among calls, and joined again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from quarry.engine.documents.document import Document, passage_text
from quarry.engine.encoding.batch_encoder import BatchEncoder, BatchLimits, DeviceBatchEncoder
from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.process.exit_gate import in_progress
from quarry.engine.process.worker_pool import PoolClosed
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.pieces import TextPieces
from quarry.formats.errors import InvalidDocument

if TYPE_CHECKING:
    from quarry.engine.representation.on_device import DeviceRepresentation

__all__ = ["Chunk", "DocumentGroups", "Part", "PartVectors", "PreparedDocument", "divide_into_calls", "join_parts"]

_log = logging.getLogger(__name__)

_WAITING = 256
"""Documents with vectors that wait for the call between them to be full."""

PartVectors = DocumentVectors | list[TokenVectors]
"""The centroids of a document, or its windows; no windows if it has no token."""


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document, or a part of one, ready for an encoder that works in batches.

    Attributes:
        text: its inputs.
        pieces: where it is cut, if that is needed on the device.
    """

    text: Any  # PreparedInputs of the encoder
    pieces: TextPieces | None


class Chunk(NamedTuple):
    """What is encoded at once: one passage of a document, or several documents that come with vectors.

    Attributes:
        documents: the document, or those with vectors.
        extent: (start, end) characters of the passage in the document's full text; None: all of it.
        is_last: whether the document has no more passages.
    """

    documents: list[Document]
    extent: tuple[int, int] | None = None
    is_last: bool = True

    @property
    def text(self) -> str:
        """The text that is encoded and analyzed: the passage, with the title of the document in front of it."""
        document = self.documents[0]
        return (
            document.full_text
            if self.extent is None
            else passage_text(document.title, document.full_text, self.extent)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a passage that is in one call; or documents that pass by, without a part in any call.

    Attributes:
        chunk: the passage, or documents that come with vectors.
        inputs: the inputs of the passage, in this call; None: it is not encoded.
        error: why the passage cannot be encoded, if it cannot.
        is_last: whether all inputs of the passage are in this call or in earlier ones.
    """

    chunk: Chunk
    inputs: PreparedDocument | None
    error: InvalidDocument | None = None
    is_last: bool = True

    def cut(self, first: int, stop: int) -> Part:
        """Return the part with the inputs from `first` to before `stop`."""
        if self.inputs is None or stop - first == self.inputs.text.n_inputs:
            return self
        text = self.inputs.text
        return replace(self, inputs=PreparedDocument(text.part(first, stop), None), is_last=stop == text.n_inputs)


class DocumentGroups:
    """Encodes groups of documents with a `BatchEncoder`; computes their centroids on its device if possible."""

    def __init__(self, encoder: BatchEncoder[Any, Any], representation: Representation) -> None:
        self._encoder = encoder
        self._on_device: tuple[DeviceBatchEncoder, DeviceRepresentation] | None = None
        if isinstance(encoder, DeviceBatchEncoder) and "token" in encoder.vector_kinds:
            from quarry.engine.representation.on_device import device_representation

            on_device = device_representation(representation)
            self._on_device = (encoder, on_device) if on_device else None

    def prepare(self, text: str) -> PreparedDocument:
        """Cut a document into inputs; safe to call from several threads.

        Raises:
            InvalidDocument: the text has a lone surrogate; the message names its position.
        """
        prepared, on_device = self._encoder.prepare(text), self._on_device
        return PreparedDocument(prepared, on_device[1].plan(text, prepared) if on_device else None)

    def encode(self, call: Sequence[Part]) -> list[tuple[Part, PartVectors]]:
        """Return the parts of a call, each with its centroids or windows."""
        with in_progress:
            vectors = iter(self.run([part.inputs for part in call if part.inputs is not None]))
        return [(part, [] if part.inputs is None else next(vectors)) for part in call]

    def run(self, group: Sequence[PreparedDocument]) -> list[PartVectors]:
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
    ) -> list[PartVectors]:
        texts = [each.text for each in group if each.text.n_inputs]
        plans = [each.pieces for each in group if each.text.n_inputs]
        if not texts:
            return [[] for _ in group]
        vectors = encoder.run_on_device(texts)
        represented = iter(device.represent(vectors, texts, plans, self._encoder.normalize))
        return [next(represented) if each.text.n_inputs else [] for each in group]


def divide_into_calls(parts: Iterable[Part], limits: BatchLimits) -> Iterator[list[Part]]:
    """Yield the parts of each call, in the order of the documents.

    With `BatchLimits.inputs`, every call but the last has exactly so many, because documents are divided; but a
    call ends earlier if 256 documents that come with vectors wait for it. Otherwise a call ends with the document
    with which it reaches the number of documents or of tokens.

    Args:
        parts: whole documents.
        limits: the limits of a call.

    Raises:
        Exception: what `parts` raised, after a call of all documents before it; `PoolClosed` at once.
    """
    call: list[Part] = []
    n_inputs = n_tokens = n_waiting = 0
    try:
        for part in parts:
            n_all, stop = part.inputs.text.n_inputs if part.inputs else 0, -1
            while stop < n_all:
                first = max(0, stop)
                stop = n_all if limits.inputs is None else min(n_all, first + limits.inputs - n_inputs)
                call.append(part.cut(first, stop))
                n_inputs += stop - first
                if part.inputs is None:
                    n_waiting += len(part.chunk.documents)
                elif limits.inputs is None:
                    n_tokens += part.inputs.text.n_tokens
                is_full = len(call) >= limits.documents if limits.inputs is None else n_inputs == limits.inputs
                if is_full or n_waiting >= _WAITING or (limits.tokens is not None and n_tokens >= limits.tokens):
                    yield call
                    call = []
                    n_inputs = n_tokens = n_waiting = 0
    except PoolClosed:
        raise
    except Exception:
        if call:
            yield call
        raise
    if call:
        yield call


def join_parts(calls: Iterable[list[tuple[Part, PartVectors]]]) -> Iterator[tuple[Part, PartVectors]]:
    """Yield the last part of each document with all that was encoded of it, in the order of the documents."""
    windows: list[TokenVectors] = []
    for part, vectors in (each for call in calls for each in call):
        if isinstance(vectors, DocumentVectors):
            yield part, vectors
            continue
        windows += vectors
        if part.is_last:
            yield part, windows
            windows = []
