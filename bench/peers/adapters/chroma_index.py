"""Chroma: a persistent collection with its HNSW index in default settings, space cosine.

As https://docs.trychroma.com/docs/collections/configure describes; batches as large as the client allows.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from bench.peers.protocol import Corpus, Found, Vector

REQUIREMENTS = ("chromadb",)
IMPORTS = ("chromadb",)


class Index:
    """See `bench.peers.protocol.PeerIndex`."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        del settings
        self._folder = folder

    def build(self, corpus: Corpus) -> None:
        """Add in batches."""
        chromadb = import_module("chromadb")

        client = chromadb.PersistentClient(path=str(self._folder))
        made = client.create_collection(
            "docs", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        step = client.get_max_batch_size()
        for low in range(0, len(corpus.ids), step):
            texts = corpus.texts[low : low + step] if corpus.texts else None
            made.add(
                ids=corpus.ids[low : low + step], embeddings=corpus.vectors[low : low + step], documents=texts
            )
        if hasattr(client, "close"):
            client.close()

    def open(self) -> None:
        """Open the collection."""
        chromadb = import_module("chromadb")

        client = chromadb.PersistentClient(path=str(self._folder))
        self._collection = client.get_collection("docs", embedding_function=None)

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by vector."""
        found = self._collection.query(query_embeddings=[vector], n_results=k, include=["documents", "distances"])
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        return [(name, 1 - distance) for name, distance in pairs]
