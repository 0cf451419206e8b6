"""zvec: a collection with an HNSW index in default settings, metric IP, optimized after loading.

As https://zvec.org/en/docs/quickstart/ shows; the README's own index parameters.
"""

from __future__ import annotations

from importlib import import_module

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("zvec",)
IMPORTS = ("zvec",)

_DOCS_AT_ONCE = 1000


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

    def build(self, corpus: Corpus) -> None:
        """Insert in batches, optimize, flush."""
        zvec = import_module("zvec")

        dim = corpus.vectors.shape[1]
        graph = zvec.HnswIndexParam(metric_type=zvec.MetricType.IP)
        schema = zvec.CollectionSchema(
            "docs",
            fields=[
                zvec.FieldSchema("name", zvec.DataType.STRING),
                zvec.FieldSchema("text", zvec.DataType.STRING),
            ],
            vectors=zvec.VectorSchema("v", zvec.DataType.VECTOR_FP32, dim, graph),
        )
        collection = zvec.create_and_open(str(self._folder), schema)
        texts = corpus.texts or [""] * len(corpus.ids)
        for batch in corpus.batches(_DOCS_AT_ONCE):
            rows = zip(corpus.ids[batch], texts[batch], corpus.vectors[batch].tolist(), strict=True)
            docs = [
                zvec.Doc(id=str(number), vectors={"v": vector}, fields={"name": name, "text": text})
                for number, (name, text, vector) in enumerate(rows, batch.start)
            ]
            collection.insert(docs)
        collection.optimize()
        collection.flush()
        collection.close()

    def open(self) -> None:
        """Open the collection for reading."""
        zvec = import_module("zvec")

        self._collection = zvec.open(str(self._folder), zvec.CollectionOption(read_only=True, enable_mmap=True))

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        zvec = import_module("zvec")

        query = zvec.Query(field_name="v", vector=vector.tolist())
        rows = self._collection.query(query, topk=k, output_fields=["name", "text"])
        return [(doc.field("name"), doc.score) for doc in rows]
