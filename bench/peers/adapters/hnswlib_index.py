"""hnswlib: HNSW over fp32 vectors in memory; ids are stored separately.

M=16 and ef_construction=200 as in the README's examples (https://github.com/nmslib/hnswlib), also ef=50, or k if
it is larger.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("hnswlib",)
IMPORTS = ("hnswlib",)

_EF = 50


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

    def build(self, corpus: Corpus) -> None:
        """Add all vectors on all threads, save."""
        hnswlib = import_module("hnswlib")

        n, dim = corpus.vectors.shape
        index = hnswlib.Index(space="ip", dim=dim)
        index.init_index(max_elements=n, ef_construction=200, M=16)
        index.add_items(corpus.vectors, np.arange(n))
        self._folder.mkdir()
        index.save_index(str(self._folder / "index.hnsw"))
        (self._folder / "dim").write_text(str(dim), encoding="utf-8")
        self._write_ids(corpus.ids)

    def open(self) -> None:
        """Load, one thread."""
        hnswlib = import_module("hnswlib")

        self._read_ids()
        self._index = hnswlib.Index(space="ip", dim=int((self._folder / "dim").read_text(encoding="utf-8")))
        self._index.load_index(str(self._folder / "index.hnsw"))
        self._index.set_num_threads(1)

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        k = min(k, len(self._ids))
        self._index.set_ef(max(_EF, k))
        numbers, distances = self._index.knn_query(vector, k=k)
        return self._to_hits(numbers[0].tolist(), (1 - distances[0]).tolist())
