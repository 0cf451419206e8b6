"""Checks of a library's adapter, run with the library itself."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from bench.peers.protocol import Corpus
from bench.peers.registry import Entry

__all__ = ["check_entry"]


def check_entry(entry: Entry, folder: Path) -> None:
    """Build an index of vectors, open it, and search it for rows; skip without the library.

    Args:
        entry: of a library that searches one vector per document.
        folder: of the index, which does not exist.
    """
    adapter = import_module(f"bench.peers.adapters.{entry.module}")
    for module in adapter.IMPORTS:
        pytest.importorskip(module, reason=f"{entry.name} needs {module}")
    generator = np.random.default_rng(4)
    vectors = generator.standard_normal((1200, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"d{number}" for number in range(len(vectors))]
    texts = [f"text {number}" for number in range(len(vectors))] if entry.stores_text else None
    corpus = Corpus(ids, texts, vectors, np.arange(len(vectors) + 1))
    adapter.Index(folder, entry.settings).build(corpus)
    opened = adapter.Index(folder, entry.settings)
    opened.open()
    for row in (0, 7, 1199):
        found = opened.search(f"text {row}", vectors[row], 5)
        assert len(found) == 5
        assert found[0][0] == ids[row]
        assert found[0][1] == pytest.approx(1, abs=0.01)
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
