"""FAISS: vectors in memory; ids are stored separately.

Settings as https://github.com/facebookresearch/faiss/wiki/Guidelines-to-choose-an-index recommends: "Flat" for
exact results, "HNSW32" if memory is not a concern, and IVF with 4 sqrt(n) lists, PQ x4fs and refinement otherwise.
"""

from __future__ import annotations

import math

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("faiss-cpu",)
IMPORTS = ("faiss",)

_EF = 64
_NPROBE = 16


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`; the setting ``factory`` names the kind of index."""

    def build(self, corpus: Corpus) -> None:
        """Train if needed, add, write."""
        import faiss

        n, dim = corpus.vectors.shape
        named = str(self._settings["factory"]).format(nlist=round(4 * math.sqrt(n)))
        index = faiss.index_factory(dim, named, faiss.METRIC_INNER_PRODUCT)
        index.train(corpus.vectors)
        index.add(corpus.vectors)
        self._folder.mkdir()
        faiss.write_index(index, str(self._folder / "index.faiss"))
        self._write_ids(corpus.ids)

    def open(self) -> None:
        """Read the index, one thread."""
        import faiss

        faiss.omp_set_num_threads(1)
        self._index = faiss.read_index(str(self._folder / "index.faiss"))
        self._read_ids()
        space, factory = faiss.ParameterSpace(), str(self._settings["factory"])
        if "HNSW" in factory:
            space.set_index_parameter(self._index, "efSearch", _EF)
        if "IVF" in factory:
            space.set_index_parameter(self._index, "nprobe", _NPROBE)
            space.set_index_parameter(self._index, "k_factor_rf", 4)

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        scores, numbers = self._index.search(vector[None], k)
        return self._to_hits(numbers[0].tolist(), scores[0].tolist())
