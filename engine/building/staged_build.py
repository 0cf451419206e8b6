"""A build whose documents are encoded somewhere else: for programs that distribute the work themselves."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from quarry.engine.arguments import checked_flag
from quarry.engine.building.builder import BuildReport, checked_shards, open_new_writer, report_build
from quarry.engine.building.plan import BuildPlan
from quarry.engine.building.workers.attempt import BuildAttempt
from quarry.engine.building.workers.job import N_MESSAGES, WrittenBatch
from quarry.engine.encoding.opening import EncoderSource
from quarry.engine.indexer.build_folder import BuildFolder
from quarry.engine.options import BuildKeywords, OpenOptions
from quarry.engine.representation.base import Representation
from quarry.engine.thresholds import Thresholds, checked_thresholds
from quarry.formats.system_errors import checked_path

__all__ = ["StagedBuild", "StagedBuildKeywords"]


class StagedBuildKeywords(BuildKeywords, total=False):
    """The keyword arguments of `StagedBuild`."""

    encoder: EncoderSource
    representation: str | Representation | None
    overwrite: bool
    skip_invalid: bool
    threads: int | None
    shards: int | None
    thresholds: Thresholds | None


class StagedBuild:
    """Holds the lock of an index that is built, and commits what others have written; a context manager.

    If the block ends without `commit`, for whatever reason, nothing of it is left.

    Args:
        path: folder of the index.
        encoder: as in `build`.
        representation: as in `build`.
        overwrite: as in `build`.
        skip_invalid: as in `build`.
        threads: for training a quantizer and joining segments; None: one for each available CPU.
        shards: as in `build`.
        thresholds: as in `build`.
        settings: as in `build`.

    Raises:
        InvalidSetting: a setting is not valid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: EncoderSource = None,
        representation: str | Representation | None = None,
        overwrite: bool = False,
        skip_invalid: bool = False,
        threads: int | None = None,
        shards: int | None = None,
        thresholds: Thresholds | None = None,
        **settings: Unpack[BuildKeywords],
    ) -> None:
        self._plan = BuildPlan.of(encoder, representation, settings)
        self._resources = OpenOptions(threads=threads, thresholds=checked_thresholds(thresholds))
        self._n_shards = checked_shards(shards)
        self._is_skipping = checked_flag(skip_invalid, "skip_invalid")
        self._folder = BuildFolder(checked_path(path, "path").absolute(), checked_flag(overwrite, "overwrite"))
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Lock the folder, and make one for the files of this attempt.

        Raises:
            QuarryError: as `build` raises it before it reads a document.
        """
        self._started = time.perf_counter()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(self._folder)
            opened = open_new_writer(folder, self._plan, self._resources, self._n_shards)
            self._writer = stack.enter_context(opened)
            self._attempt = stack.enter_context(
                BuildAttempt(folder.path, self._writer, self._plan, self._resources.thresholds, self._is_skipping)
            )
            self.job = self._attempt.job
            self._stack = stack.pop_all()
        return self

    def commit(self, written: Sequence[WrittenBatch]) -> BuildReport:
        """Make an index of everything that was written; see `BuildAttempt.commit`."""
        committed = self._attempt.commit(written)
        skipped = [message for batch in sorted(written, key=lambda each: each.order) for message in batch.skipped]
        n_skipped = sum(batch.n_skipped for batch in written)
        return report_build(self._folder, self._writer, committed, n_skipped, skipped[:N_MESSAGES], self._started)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
