"""Waits for background merges."""

from __future__ import annotations

from quarry.engine import Engine
from quarry.engine.indexer.index_writer import IndexWriter

__all__ = ["wait_for_merges"]


def wait_for_merges(index: Engine | IndexWriter) -> None:
    """Wait for background merges to end, as `close` does, and raise their errors."""
    writer = index._writer if isinstance(index, Engine) else index
    assert isinstance(writer, IndexWriter)
    writer.partitions[0]._merges.wait()
