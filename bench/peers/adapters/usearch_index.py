"""USearch: HNSW over bf16 vectors; ids are stored separately.

Metric, dtype, connectivity 16, expansion_add 128 and expansion_search 64 are those of the README
(https://github.com/unum-cloud/usearch); the file is mapped (``view=True``), as it recommends.
"""

from __future__ import annotations

import numpy as np

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("usearch",)
IMPORTS = ("usearch.index",)


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

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
        self._write_ids(corpus.ids)

    def open(self) -> None:
        """Map the file."""
        from usearch.index import Index as Graph

        self._read_ids()
        index = Graph.restore(str(self._folder / "index.usearch"), view=True)
        assert index is not None
        self._index = index

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        matches = self._index.search(vector, k, threads=1)
        return self._to_hits(matches.keys.tolist(), (1 - matches.distances).tolist())
