"""FAISS: vectors in the caller's process; ids are kept beside them.

Settings as https://github.com/facebookresearch/faiss/wiki/Guidelines-to-choose-an-index recommends: "Flat" where
exact answers are wanted, "HNSW32" where memory is not a concern, and IVF with 4 sqrt(n) lists, PQ x4fs and a
refinement otherwise.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from bench.peers.protocol import Corpus, Found, Vector

REQUIREMENTS = ("faiss-cpu",)
IMPORTS = ("faiss",)

_EF = 64
_NPROBE = 16


class Index:
    """See `bench.peers.protocol.PeerIndex`; the setting ``factory`` names the kind of index."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self._folder = folder
        self._factory = str(settings["factory"])

    def build(self, corpus: Corpus) -> None:
        """Train where needed, add, write."""
        import faiss

        n, dim = corpus.vectors.shape
        named = self._factory.format(nlist=round(4 * math.sqrt(n)))
        index = faiss.index_factory(dim, named, faiss.METRIC_INNER_PRODUCT)
        index.train(corpus.vectors)
        index.add(corpus.vectors)
        self._folder.mkdir()
        faiss.write_index(index, str(self._folder / "index.faiss"))
        (self._folder / "ids.json").write_text(json.dumps(corpus.ids), encoding="utf-8")

    def open(self) -> None:
        """Read the index, one thread."""
        import faiss

        faiss.omp_set_num_threads(1)
        self._index = faiss.read_index(str(self._folder / "index.faiss"))
        self._ids: list[str] = json.loads((self._folder / "ids.json").read_text(encoding="utf-8"))
        space = faiss.ParameterSpace()
        if "HNSW" in self._factory:
            space.set_index_parameter(self._index, "efSearch", _EF)
        if "IVF" in self._factory:
            space.set_index_parameter(self._index, "nprobe", _NPROBE)
            space.set_index_parameter(self._index, "k_factor_rf", 4)

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by vector."""
        scores, found = self._index.search(vector[None], k)
        pairs = zip(found[0].tolist(), scores[0].tolist(), strict=True)
        return [(self._ids[number], score) for number, score in pairs if number >= 0]
