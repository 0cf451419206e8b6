"""Quarry, through the same interface as the other libraries."""

from __future__ import annotations

from typing import Any, cast

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS: tuple[str, ...] = ()
IMPORTS = (
    "quarry.engine.engine",
    "quarry.engine.encoding.runtimes.onnx_encoder",
    "simsimd",
    "tokenizers",
    "Stemmer",
)


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`.

    Settings: ``representation`` (its name), ``build`` (keywords of `engine.build`), ``mode`` of search.
    """

    def build(self, corpus: Corpus) -> None:
        """Build from texts: encoding included, as an application does."""
        from quarry import engine

        docs = ({"id": doc, "text": text} for doc, text in zip(corpus.ids, corpus.texts or [], strict=True))
        keywords = cast(dict[str, Any], self._settings["build"])
        representation = cast(Any, self._settings["representation"])
        engine.build(docs, self._folder, representation=representation, progress=False, **keywords)

    def open(self) -> None:
        """Open for reading, one thread."""
        from quarry.engine import Engine

        self._index = Engine.open(self._folder, threads=1)

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by vector."""
        return [(hit.id, hit.score) for hit in self._index.search_vectors(vector[None], k)[0] if hit.text]

    def search_text(self, text: str, k: int) -> Ranking:
        """Search by text, in the mode of the settings; texts of hits are read."""
        mode = cast(Any, self._settings["mode"])
        return [(hit.id, hit.score) for hit in self._index.search(text, k, mode=mode) if hit.text]
