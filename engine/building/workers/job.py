"""Jobs for other processes that write documents of an index, and their results."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

from quarry.engine.encoding.encoder import Encoder, describe_encoder
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.encoding.opening import EncoderSource, open_encoder, portable_source
from quarry.engine.indexer.segments.adopted_segments import StagedSegment
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import stored_representation
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import IndexSettings

__all__ = ["N_MESSAGES", "BuildJob", "WrittenBatch", "packed_parts"]

N_MESSAGES = 10
"""Largest number of messages that are kept of documents that were left out."""


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """Work on one index, the same for all batches; it can be pickled.

    Attributes:
        index: folder of the index, for messages.
        staging: folder to write segments to; it must be the same folder for all processes.
        settings: of the index.
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
