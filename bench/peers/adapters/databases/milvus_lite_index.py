"""Milvus Lite: a local database file, quick setup with its default index.

As https://milvus.io/docs/quickstart.md shows, with string ids and metric IP.
"""

from __future__ import annotations

from importlib import import_module

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("milvus-lite", "pymilvus")
IMPORTS = ("pymilvus", "milvus_lite")

_ROWS_AT_ONCE = 1000


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

    def build(self, corpus: Corpus) -> None:
        """Insert in batches, flush."""
        self._folder.mkdir()
        client = import_module("pymilvus").MilvusClient(str(self._folder / "docs.db"))
        dim = corpus.vectors.shape[1]
        client.create_collection("docs", dimension=dim, id_type="string", max_length=512, metric_type="IP")
        texts = corpus.texts or [""] * len(corpus.ids)
        rows = [
            {"id": name, "vector": vector, "text": text} if corpus.texts else {"id": name, "vector": vector}
            for name, text, vector in zip(corpus.ids, texts, corpus.vectors, strict=True)
        ]
        for batch in corpus.batches(_ROWS_AT_ONCE):
            client.insert("docs", rows[batch])
        client.flush("docs")
        client.close()

    def open(self) -> None:
        """Open the database, load the collection."""
        self._client = import_module("pymilvus").MilvusClient(str(self._folder / "docs.db"))
        self._client.load_collection("docs")

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        hits = self._client.search("docs", data=[vector], limit=k, output_fields=["text"])[0]
        return [(hit["id"], hit["distance"]) for hit in hits]
