"""LanceDB: a table with a vector column and the text.

Without an index, as https://docs.lancedb.com/indexing/vector-index advises below about 100,000 vectors; and
with IVF_PQ in its default settings, nprobes 20 and refine_factor 10 as in its examples.
"""

from __future__ import annotations

from importlib import import_module

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("lancedb",)
IMPORTS = ("lancedb",)

_ROWS_AT_ONCE = 5000


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`; the setting ``index`` says whether IVF_PQ is built."""

    def build(self, corpus: Corpus) -> None:
        """Add in batches, build the index if requested, compact."""
        lancedb = import_module("lancedb")
        pa = import_module("pyarrow")

        dim = corpus.vectors.shape[1]
        texts = corpus.texts or [""] * len(corpus.ids)
        fields = [("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), dim))]
        table = lancedb.connect(self._folder).create_table("docs", schema=pa.schema(fields))
        for batch in corpus.batches(_ROWS_AT_ONCE):
            vectors = pa.FixedSizeListArray.from_arrays(corpus.vectors[batch].ravel(), dim)
            table.add(pa.table({"id": corpus.ids[batch], "text": texts[batch], "vector": vectors}))
        if self._settings["index"]:
            table.create_index(metric="dot", index_type="IVF_PQ")
        table.optimize()

    def open(self) -> None:
        """Open the table."""
        lancedb = import_module("lancedb")

        self._table = lancedb.connect(self._folder).open_table("docs")

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        query = self._table.search(vector).distance_type("dot").limit(k).select(["id", "text", "_distance"])
        if self._settings["index"]:
            query = query.nprobes(20).refine_factor(10)
        return [(row["id"], -row["_distance"]) for row in query.to_list()]
