"""Records of the batches that were begun: a batch that ends its processes is named, and given up."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import xxhash

from quarry.engine.attempts.batches import DocumentBatch
from quarry.engine.attempts.worker_processes import MAX_ATTEMPTS
from quarry.formats.errors import WorkerFailed
from quarry.formats.system_errors import system_errors

__all__ = ["recorded", "unfinished_batches"]

_PREFIX = "begun-"


@contextlib.contextmanager
def recorded(staging: Path, task: str, batch: DocumentBatch, index: Path) -> Iterator[None]:
    """Record in the folder of the attempt that a batch was begun, until the block ends; killed processes leave it.

    By default Ray repeats a task whose process ended without limit, so the records are also what limits that.

    Args:
        staging: folder of the attempt.
        task: names the task, the same each time it is repeated; "": it is not counted.
        batch: of the task.
        index: folder of the index, for messages.

    Raises:
        WorkerFailed: processes have ended with this batch `MAX_ATTEMPTS` times.
    """
    texts = xxhash.xxh3_128()
    for document in batch.documents:
        texts.update(document.full_text.encode("utf-8", "surrogatepass"))  # not ids, which may be random
    name = f"{_PREFIX}{task}-{batch.number}-{texts.hexdigest()}-"
    with system_errors("listed", staging):
        n_before = sum(each.name.startswith(name) for each in staging.iterdir())
    if task and n_before >= MAX_ATTEMPTS:
        raise WorkerFailed(
            f"{batch} of task {task}: {MAX_ATTEMPTS} processes ended while they encoded them",
            path=index,
            expected="documents that can be encoded, and enough memory",
        )
    record = staging / f"{name}{secrets.token_hex(8)}"
    with system_errors("written", record):
        record.write_text(str(batch), encoding="utf-8")
    try:
        yield
    finally:
        record.unlink(missing_ok=True)


def unfinished_batches(staging: Path) -> list[str]:
    """Return descriptions of the batches that were begun and never ended."""
    with contextlib.suppress(OSError):
        return sorted({each.read_text(encoding="utf-8") for each in staging.glob(f"{_PREFIX}*")})
    return []
