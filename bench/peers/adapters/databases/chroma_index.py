"""Chroma: a persistent collection with its HNSW index in default settings, space cosine.

As https://docs.trychroma.com/docs/collections/configure describes; batches as large as the client allows.
"""

from __future__ import annotations

from importlib import import_module

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("chromadb",)
IMPORTS = ("chromadb",)


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

    def build(self, corpus: Corpus) -> None:
        """Add in batches."""
        chromadb = import_module("chromadb")

        client = chromadb.PersistentClient(path=str(self._folder))
        collection = client.create_collection(
            "docs", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        for batch in corpus.batches(client.get_max_batch_size()):
            texts = corpus.texts[batch] if corpus.texts else None
            collection.add(ids=corpus.ids[batch], embeddings=corpus.vectors[batch], documents=texts)
        if hasattr(client, "close"):
            client.close()

    def open(self) -> None:
        """Open the collection."""
        chromadb = import_module("chromadb")

        client = chromadb.PersistentClient(path=str(self._folder))
        self._collection = client.get_collection("docs", embedding_function=None)

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        answer = self._collection.query(query_embeddings=[vector], n_results=k, include=["documents", "distances"])
        pairs = zip(answer["ids"][0], answer["distances"][0], strict=True)
        return [(name, 1 - distance) for name, distance in pairs]
