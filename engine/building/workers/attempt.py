"""One attempt to build an index with several processes: it becomes the index in one step, or leaves no files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quarry.engine.building.workers.job import BuildJob, WrittenBatch, packed_parts
from quarry.engine.building.workers.staging import delete_staging, make_staging
from quarry.engine.encoding.opening import EncoderSource
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.representation.base import Representation
from quarry.engine.thresholds import Thresholds
from quarry.formats.manifest import IndexSettings

__all__ = ["BuildAttempt"]


@dataclass(eq=False)
class BuildAttempt:
    """Collects what other processes have written for one index.

    The process that commits holds the lock of the index from before `start` until after `commit` or `abort`. If it
    ends before the commit is visible, the index is as it was, and the next writer deletes the files of the
    attempt; if it ends after that, the commit is complete.

    Attributes:
        index: folder of the index.
        writer: of the new index, without documents; it belongs to the caller, who holds the lock of the index.
        settings: of the new index.
        encoder: makes the vectors, in every process; as for `packed_parts`.
        encoder_identity: identity of the vectors of the new index.
        thresholds: memory of writers.
        skip_invalid: whether documents that cannot be encoded are left out.
        representation: as for `IndexWriter`, in every process.
    """

    index: Path
    writer: IndexWriter
    settings: IndexSettings
    encoder: EncoderSource
    encoder_identity: str
    thresholds: Thresholds
    skip_invalid: bool
    representation: Representation | None
    _staging: Path | None = field(default=None, init=False)

    def start(self) -> BuildJob:
        """Make a folder for the files of this attempt, and describe the work.

        Raises:
            InvalidSetting: the encoder or the representation cannot be sent to other processes.
            AccessFailed: the operating system refuses the folder.
        """
        packed = packed_parts(self.encoder, self.representation)
        self._staging = make_staging(self.index)
        return BuildJob(
            index=self.index,
            staging=self._staging,
            settings=self.settings,
            parts=packed,
            encoder_identity=self.encoder_identity,
            thresholds=self.thresholds,
            n_shards=self.writer.n_shards,
            skip_invalid=self.skip_invalid,
        )

    def commit(self, written: Iterable[WrittenBatch]) -> tuple[int, int]:
        """Make an index of everything that was written, and delete the files of the attempt.

        Args:
            written: every batch once, in any order; what another attempt wrote for one of them is not named.

        Returns:
            The generation, and how many documents were replaced by later ones of the same id.

        Raises:
            QuarryError: nothing was committed, unless it is DurabilityUnknown.
        """
        batches = sorted(written, key=lambda batch: batch.order)
        self.writer.adopt([batch.segments for batch in batches], sum(batch.n_tokens for batch in batches))
        done = self.writer.commit()
        self.abort()
        return done

    def abort(self) -> None:
        """Delete the files of the attempt; harmless after `commit`."""
        staging, self._staging = self._staging, None
        if staging is not None:
            delete_staging(staging)
