"""One attempt to build an index with several processes: it becomes the index in one step, or leaves no files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from quarry.engine.building.plan import BuildPlan
from quarry.engine.building.workers.job import BuildJob, WrittenBatch, packed_parts
from quarry.engine.building.workers.staging import delete_staging, make_staging
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.thresholds import Thresholds

__all__ = ["BuildAttempt"]


class BuildAttempt:
    """Collects what other processes have written for one index; a context manager.

    The process that commits holds the lock of the index from before the block until after it. If it ends before
    the commit is visible, the index is as it was, and the next writer deletes the files of the attempt; if it ends
    after that, the commit is complete.

    Args:
        index: folder of the index.
        writer: of the new index, without documents; it belongs to the caller, who holds the lock of the index.
        plan: of the new index.
        thresholds: memory of writers.
        skip_invalid: whether documents that cannot be encoded are left out.

    Attributes:
        job: the work for other processes, in the block.

    Raises:
        InvalidSetting: from `__enter__`: the encoder or the representation cannot be sent to other processes.
        AccessFailed: from `__enter__`: the operating system refuses a folder for the files of the attempt.
    """

    job: BuildJob

    def __init__(
        self, index: Path, writer: IndexWriter, plan: BuildPlan, thresholds: Thresholds, skip_invalid: bool
    ) -> None:
        self._index = index
        self._writer = writer
        self._plan = plan
        self._thresholds = thresholds
        self._skip_invalid = skip_invalid

    def __enter__(self) -> Self:
        parts = packed_parts(self._plan.source, self._plan.representation)
        self.job = BuildJob(
            index=self._index,
            staging=make_staging(self._index),
            settings=self._writer.settings,
            parts=parts,
            encoder_identity=self._plan.encoder.identity,
            thresholds=self._thresholds,
            n_shards=self._writer.n_shards,
            skip_invalid=self._skip_invalid,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the files of the attempt."""
        delete_staging(self.job.staging)

    def commit(self, written: Iterable[WrittenBatch]) -> tuple[int, int]:
        """Make an index of everything that was written.

        Args:
            written: every batch once, in any order; what another attempt wrote for one of them is not named.

        Returns:
            The generation, and how many documents were replaced by later ones of the same id.

        Raises:
            QuarryError: nothing was committed, unless it is DurabilityUnknown.
        """
        batches = sorted(written, key=lambda batch: batch.order)
        self._writer.adopt([batch.segments for batch in batches], sum(batch.n_tokens for batch in batches))
        return self._writer.commit()
