"""USearch: HNSW over bf16 vectors; ids are kept beside them.

Metric, dtype, connectivity 16, expansion_add 128 and expansion_search 64 are those of the README
(https://github.com/unum-cloud/usearch); the file is mapped (``view=True``), as it recommends.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bench.peers.protocol import Corpus, Found, Vector

REQUIREMENTS = ("usearch",)
IMPORTS = ("usearch.index",)


class Index:
    """See `bench.peers.protocol.PeerIndex`."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        del settings
        self._folder = folder

    def build(self, corpus: Corpus) -> None:
        """Add all vectors on all threads, save."""
        from usearch.index import Index as Graph

        n, dim = corpus.vectors.shape
        index = Graph(
            ndim=dim, metric="cos", dtype="bf16", connectivity=16, expansion_add=128, expansion_search=64
        )
        index.add(np.arange(n), corpus.vectors)
        self._folder.mkdir()
        index.save(str(self._folder / "index.usearch"))
        (self._folder / "ids.json").write_text(json.dumps(corpus.ids), encoding="utf-8")

    def open(self) -> None:
        """Map the file."""
        from usearch.index import Index as Graph

        self._ids: list[str] = json.loads((self._folder / "ids.json").read_text(encoding="utf-8"))
        index = Graph.restore(str(self._folder / "index.usearch"), view=True)
        assert index is not None
        self._index = index

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by vector."""
        found = self._index.search(vector, k, threads=1)
        pairs = zip(found.keys.tolist(), found.distances.tolist(), strict=True)
        return [(self._ids[number], 1 - distance) for number, distance in pairs]
