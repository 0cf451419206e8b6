"""hnswlib: HNSW over fp32 vectors in memory; ids are kept beside them.

M=16 and ef_construction=200 as in the README's examples (https://github.com/nmslib/hnswlib), ef=50 there too, more
if more hits are requested.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np

from bench.peers.protocol import Corpus, Found, Vector

REQUIREMENTS = ("hnswlib",)
IMPORTS = ("hnswlib",)

_EF = 50


class Index:
    """See `bench.peers.protocol.PeerIndex`."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        del settings
        self._folder = folder

    def build(self, corpus: Corpus) -> None:
        """Add all vectors on all threads, save."""
        hnswlib = import_module("hnswlib")

        n, dim = corpus.vectors.shape
        index = hnswlib.Index(space="ip", dim=dim)
        index.init_index(max_elements=n, ef_construction=200, M=16)
        index.add_items(corpus.vectors, np.arange(n))
        self._folder.mkdir()
        index.save_index(str(self._folder / "index.hnsw"))
        (self._folder / "ids.json").write_text(json.dumps([dim, corpus.ids]), encoding="utf-8")

    def open(self) -> None:
        """Load, one thread."""
        hnswlib = import_module("hnswlib")

        dim, self._ids = json.loads((self._folder / "ids.json").read_text(encoding="utf-8"))
        self._index = hnswlib.Index(space="ip", dim=dim)
        self._index.load_index(str(self._folder / "index.hnsw"))
        self._index.set_num_threads(1)

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by vector."""
        k = min(k, len(self._ids))
        self._index.set_ef(max(_EF, k))
        found, distances = self._index.knn_query(vector, k=k)
        pairs = zip(found[0].tolist(), distances[0].tolist(), strict=True)
        return [(self._ids[number], 1 - distance) for number, distance in pairs]
