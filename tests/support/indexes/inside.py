"""What an open index does not show, for the tests of its threads, locks and memory.

Only this module reads private attributes. Each function says why there is no other way to see what it returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pytest

import quarry.formats.write_lock
from quarry.engine import Engine
from quarry.engine.gpu.device import Device
from quarry.engine.index.gathering import ShardThreads
from quarry.engine.indexer.commits.failures import WriterStatus
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.merge_scheduler import MergeScheduler
from quarry.engine.process.per_process import shared_models
from quarry.formats.write_lock import WriteLock

if TYPE_CHECKING:
    from quarry.engine.index.view import View

__all__ = [
    "device_of",
    "forget_shared_models",
    "held_locks",
    "locks_of",
    "merges_of",
    "status_of",
    "threads_of",
    "trace_once",
    "view_of",
    "wait_for_merges",
    "writer_of",
]


def view_of(index: Engine) -> View:
    """Return the generation that an index searches; its files, backends and threads are seen nowhere else."""
    return index._view.get()


def device_of(index: Engine) -> Device:
    """Return the device of an index; the memory that it takes there is given back after the index is closed."""
    assert isinstance(index._device, Device)
    return index._device


def writer_of(index: Engine) -> IndexWriter:
    """Return the writer of an index, which shows what a failed change left in it."""
    assert index._writer is not None
    return index._writer


def merges_of(index: Engine | IndexWriter) -> MergeScheduler:
    """Return what merges in the background; users have no reason to wait for it, or to merge within a commit."""
    writer = index if isinstance(index, IndexWriter) else writer_of(index)
    return writer.partitions[0]._merges


def wait_for_merges(index: Engine | IndexWriter) -> None:
    """Wait for background merges to end, as `close` does, and raise their errors."""
    merges_of(index).wait()


def status_of(writer: IndexWriter) -> WriterStatus:
    """Return whether a writer can continue; of what it says to users, several statuses look alike."""
    return writer.partitions[0]._state.status


def threads_of(index: Engine) -> ShardThreads:
    """Return the threads that ask the shards of an index: a shard is late if they are busy."""
    assert index._view._threads is not None
    return index._view._threads


def locks_of(index: Engine) -> list[AbstractContextManager[object]]:
    """Return the locks of an open index and its writer, which a thread may hold when the process forks."""
    writer, segment = writer_of(index).partitions[0], view_of(index).partitions[0].segments[0]
    return [index._view._lock, writer._mutex, writer._committer.mutex, segment.reader._holding]


def forget_shared_models(patch: pytest.MonkeyPatch) -> None:
    """Open models anew, although fixtures of other tests keep them open."""
    patch.setattr(shared_models, "_models", WeakValueDictionary())


def held_locks() -> Iterable[WriteLock]:
    """Return the locks of this process; the system releases them when it ends, and a simulated end must, too."""
    return list(quarry.formats.write_lock._held)


TRACES: dict[object, Any] = {}


def trace_once(patch: pytest.MonkeyPatch) -> None:
    """Trace a network once for all heads and precisions: a trace takes longer than all the rest of an export."""
    from quarry.exporters.graph import torch_trace

    trace = torch_trace.trace

    def once(checkpoint: Any, mlm: bool) -> Any:
        config, weights = ((checkpoint.path / name).read_bytes() for name in ("config.json", "model.safetensors"))
        if (config, weights, mlm) not in TRACES:
            TRACES[config, weights, mlm] = trace(checkpoint, mlm)
        return TRACES[config, weights, mlm]

    patch.setattr(torch_trace, "trace", once)
