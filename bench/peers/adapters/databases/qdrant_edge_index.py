"""Qdrant Edge: one shard in the process, default settings, optimized after loading.

Calls as https://qdrant.tech/documentation/edge/ shows them.
"""

from __future__ import annotations

from importlib import import_module

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("qdrant-edge-py",)
IMPORTS = ("qdrant_edge",)

_POINTS_AT_ONCE = 1000


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

    def build(self, corpus: Corpus) -> None:
        """Upsert in batches, optimize, flush."""
        edge = import_module("qdrant_edge")

        self._folder.mkdir()
        vectors = {"v": edge.EdgeVectorParams(size=corpus.vectors.shape[1], distance=edge.Distance.Cosine)}
        shard = edge.EdgeShard.create(str(self._folder), edge.EdgeConfig(vectors=vectors))
        texts = corpus.texts or [""] * len(corpus.ids)
        for batch in corpus.batches(_POINTS_AT_ONCE):
            rows = zip(corpus.ids[batch], texts[batch], corpus.vectors[batch].tolist(), strict=True)
            points = [
                edge.Point(number, {"v": vector}, {"id": name, "text": text} if corpus.texts else {"id": name})
                for number, (name, text, vector) in enumerate(rows, batch.start)
            ]
            shard.update(edge.UpdateOperation.upsert_points(points))
        shard.optimize()
        shard.flush()
        shard.close()

    def open(self) -> None:
        """Load the shard."""
        edge = import_module("qdrant_edge")

        self._shard = edge.EdgeShard.load(str(self._folder))

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        edge = import_module("qdrant_edge")

        nearest = edge.Query.Nearest(vector.tolist(), using="v")
        points = self._shard.query(edge.QueryRequest(limit=k, query=nearest, with_payload=True))
        return [(point.payload["id"], point.score) for point in points]
