"""Merges in the background."""

from __future__ import annotations

from quarry.engine import Engine
from quarry.engine.indexer.index_writer import IndexWriter

__all__ = ["wait_for_merges"]


def wait_for_merges(index: Engine | IndexWriter) -> None:
    """Wait, as `close` does, for merges in the background to end, and raise what they failed with."""
    writer = index._writer if isinstance(index, Engine) else index
    assert isinstance(writer, IndexWriter)
    writer._merges.wait()
