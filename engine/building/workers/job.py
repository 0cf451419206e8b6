"""The work of other processes that write documents of an index: the job, batches of documents, and results."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder, describe_encoder
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.encoding.opening import EncoderSource, open_encoder, portable_source
from quarry.engine.indexer.segments.adopted_segments import StagedSegment
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import stored_representation
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import IndexSettings

__all__ = ["N_MESSAGES", "BuildJob", "DocumentBatch", "WrittenBatch", "divide", "packed_parts"]

N_MESSAGES = 10
"""Largest number of messages that are kept of documents that were left out."""

_LEAST, _MOST = 64, 2048  # documents
_MOST_CHARACTERS = 8 << 20  # of a batch
_SHARE = 16  # of the documents read before, per process: the last batches leave few processes idle


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """Work on one index, the same for all batches; it can be pickled.

    Attributes:
        index: folder of the index, for messages.
        staging: folder to write segments to; it must be the same folder for all processes.
        settings: the settings of the index.
        parts: what `packed_parts` returned.
        encoder_identity: identity of its vectors.
        thresholds: memory of writers.
        n_shards: number of shards; None: an index without shards.
        skip_invalid: whether documents that cannot be encoded are left out and reported.
    """

    index: Path
    staging: Path
    settings: IndexSettings
    parts: bytes
    encoder_identity: str
    thresholds: Thresholds
    n_shards: int | None
    skip_invalid: bool

    def open_parts(self) -> tuple[Encoder, Representation]:
        """Return the encoder and the representation, in another process than they were packed in.

        Raises:
            InvalidSetting: their bytes cannot be loaded, for example because this process cannot import its class.
            EncoderMismatch: it is another one here, for example because the folder of a bundle has other files.
        """
        try:
            source, given = pickle.loads(self.parts)
        except Exception as error:  # whatever the code of its class raises
            raise InvalidSetting(
                "the encoder, or the representation, cannot be loaded in another process",
                path=self.index,
                expected="a bundle's folder, or an object of a class that every process can import",
                actual=f"{type(error).__name__}: {error}",
            ) from error
        encoder = source if isinstance(source, NoEncoder) else open_encoder(source)
        if encoder.identity != self.encoder_identity:
            raise EncoderMismatch(
                "this process has another encoder than the one that commits the index",
                path=self.index,
                expected=self.encoder_identity,
                actual=describe_encoder(encoder),
            )
        stored = self.settings.representation, self.settings.representation_settings
        return encoder, stored_representation(*stored, given)


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Documents that are encoded and written together.

    Attributes:
        number: counted from 0.
        first: number of the first document in the stream, from 0.
        documents: at least one.
    """

    number: int
    first: int
    documents: list[Document]

    def __str__(self) -> str:
        last = self.first + len(self.documents)
        return f"documents {self.first + 1} to {last} ({_describe(self.documents)})"


@dataclass(frozen=True, kw_only=True)
class WrittenBatch:
    """A batch of documents that was written.

    Attributes:
        order: batches are joined in this order.
        segments: for each shard with documents of the batch, by its number, the segment; 0 without shards.
        n_documents: documents in them.
        n_tokens: number of tokens encoded.
        n_skipped: documents left out.
        skipped: messages of the first `N_MESSAGES` of them.
    """

    order: tuple[int, ...]
    segments: dict[int, StagedSegment]
    n_documents: int
    n_tokens: int
    n_skipped: int
    skipped: tuple[str, ...]


def packed_parts(source: EncoderSource, representation: Representation | None) -> bytes:
    """Return an encoder as bytes for other processes, each of which opens a bundle for the devices that it has.

    Args:
        source: as for `quarry.engine.encoding.opening.open_encoder`, or `NoEncoder`.
        representation: an object that goes with it; None: each process finds it by its name.

    Raises:
        InvalidSetting: the encoder, or the representation, cannot be pickled.
    """
    try:
        return pickle.dumps((portable_source(source), representation))
    except Exception as error:  # besides PicklingError whatever its attributes raise
        raise InvalidSetting(
            "the encoder, or the representation, cannot be sent to other processes",
            expected="a bundle's folder, or an object that can be pickled",
            actual=str(error),
        ) from error


def divide(documents: Iterable[Document], n_processes: int) -> Iterator[DocumentBatch]:
    """Yield batches whose sizes grow with the number of documents before them.

    The largest have 2,048 documents or 8 Mi characters.

    Args:
        documents: in their order, which batches keep.
        n_processes: how many work on batches at the same time.
    """
    batch: list[Document] = []
    number = first = n_characters = 0
    for document in documents:
        batch.append(document)
        n_characters += len(document.title) + len(document.text)
        size = min(_MOST, max(_LEAST, first // (_SHARE * n_processes)))
        if len(batch) >= size or n_characters >= _MOST_CHARACTERS:
            yield DocumentBatch(number, first, batch)
            number, first = number + 1, first + len(batch)
            batch, n_characters = [], 0
    if batch:
        yield DocumentBatch(number, first, batch)


def _describe(documents: list[Document]) -> str:
    """Return the ids of the first and last of some documents, for messages."""
    first, last = (ascii(documents[place].id[:80]) for place in (0, -1))
    return f"id {first}" if len(documents) == 1 else f"ids {first} to {last}"
