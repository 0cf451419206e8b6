"""Records of the work that was begun: what ends its processes is named, and given up."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import xxhash

from quarry.engine.building.workers.job import DocumentBatch
from quarry.engine.building.workers.worker_processes import MAX_ATTEMPTS
from quarry.formats.errors import WorkerFailed
from quarry.formats.system_errors import system_errors

__all__ = ["WorkRecords", "unfinished_batches"]

_PREFIX = "begun-"
_OF_BATCH = f"{_PREFIX}batch-"


class WorkRecords:
    """Records in the folder of an attempt what is begun, until it ends; processes that are killed leave records.

    By default Ray repeats a task whose process ended without limit, so the records are also what limits that.

    Args:
        staging: folder of the attempt.
        task: what Ray repeats under the same name, one batch at a time: a task, or an actor.
        index: folder of the index, for messages.
    """

    def __init__(self, staging: Path, task: str, index: Path) -> None:
        self._staging = staging
        self._task = task
        self._index = index

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Record that the encoder is loaded, until the block ends.

        Raises:
            WorkerFailed: processes have ended while they did that for this task `MAX_ATTEMPTS` times.
        """
        with self._recorded(f"{_PREFIX}encoder-{self._task}-", "loaded the encoder"):
            yield

    @contextlib.contextmanager
    def encoding(self, batch: DocumentBatch) -> Iterator[None]:
        """Record that a batch is encoded, until the block ends.

        Raises:
            WorkerFailed: processes have ended with this batch `MAX_ATTEMPTS` times.
        """
        texts = xxhash.xxh3_128()
        for document in batch.documents:
            texts.update(document.full_text.encode("utf-8", "surrogatepass"))  # not ids, which may be random
        name = f"{_OF_BATCH}{self._task}-{batch.number}-{texts.hexdigest()}-"
        with self._recorded(name, f"encoded {batch}", str(batch)):
            yield

    @contextlib.contextmanager
    def _recorded(self, name: str, work: str, content: str = "") -> Iterator[None]:
        with system_errors("listed", self._staging):
            n_before = sum(each.name.startswith(name) for each in self._staging.iterdir())
        if n_before >= MAX_ATTEMPTS:
            raise WorkerFailed(
                f"{MAX_ATTEMPTS} processes ended while they {work}",
                path=self._index,
                expected="documents that can be encoded, and enough memory",
            )
        record = self._staging / f"{name}{secrets.token_hex(8)}"
        with system_errors("written", record):
            record.write_text(content, encoding="utf-8")
        try:
            yield
        finally:
            record.unlink(missing_ok=True)


def unfinished_batches(staging: Path) -> list[str]:
    """Return descriptions of the batches that were begun and never ended."""
    with contextlib.suppress(OSError):
        return sorted({each.read_text(encoding="utf-8") for each in staging.glob(f"{_OF_BATCH}*")})
    return []
