"""One attempt to build an index with several processes: it becomes the index in one step, or leaves no files.

Its files are in a folder beside the index, not in it, until everything in them is in the index.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import xxhash

from quarry.engine.building.plan import BuildPlan
from quarry.engine.building.workers.job import BuildJob, WrittenBatch, packed_parts
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.thresholds import Thresholds
from quarry.formats.system_errors import system_errors
from quarry.formats.write_lock import WriteLock

__all__ = ["BuildAttempt", "collect_staging", "make_staging"]

_SUFFIX = re.compile(r"[0-9a-f]{32}")


class BuildAttempt:
    """Collects what other processes have written for one index; a context manager.

    The process that commits holds the lock of the index from before the block until after it. If it ends before
    the commit is visible, the index is as it was, and the next writer deletes the files of the attempt; if it ends
    after that, the commit is complete.

    Args:
        index: folder of the index.
        writer: the writer of the new index, without documents; it belongs to the caller, who holds the lock of the
            index.
        plan: the plan of the new index.
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
        """Delete the files of the attempt; what cannot be deleted stays for `collect_staging`."""
        shutil.rmtree(self.job.staging, ignore_errors=True)

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


def make_staging(index: Path) -> Path:
    """Make a folder for the files of one attempt, on the file system of the index, under a name of its own.

    Raises:
        AccessFailed: the operating system refuses.
    """
    folder, prefix = _place_and_prefix(index)
    path = folder / f"{prefix}{secrets.token_hex(16)}"
    with system_errors("made", path):
        os.mkdir(path)  # noqa: PTH102
    return path


def collect_staging(index: Path, lock: WriteLock) -> None:
    """Delete the folders of attempts for this index that ended without a commit, for example because of a crash.

    Only for a writer that has no attempt under way; those of others would hold the lock of the index, too.

    Args:
        index: folder of the index.
        lock: the lock of the index, held.
    """
    folder, prefix = _place_and_prefix(index)
    with contextlib.suppress(OSError):  # others may not be allowed to list the folder
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(prefix)]
        for name in names:
            if _SUFFIX.fullmatch(name.removeprefix(prefix)) and lock.is_in_place():
                shutil.rmtree(folder / name, ignore_errors=True)


def _place_and_prefix(index: Path) -> tuple[Path, str]:
    """The folder that the attempts for an index are in, and how their names begin there.

    Indexes may have names as long as the system allows, so that of an attempt has a hash of it.
    """
    path = Path(os.path.realpath(index))
    return path.parent, f".quarry-{xxhash.xxh3_64_hexdigest(os.fsencode(path.name))}-"
