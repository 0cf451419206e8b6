"""bm25s: lexical search, English stop words and stemmer, mapped from disk.

As the README recommends (https://github.com/xhluca/bm25s): a stemmer, ``mmap=True``.
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.peers.protocol import Corpus, Found, Vector

REQUIREMENTS = ("bm25s", "PyStemmer", "numba")
IMPORTS = ("bm25s", "numba", "Stemmer")


class Index:
    """See `bench.peers.protocol.PeerIndex`; texts are not kept, vectors not used."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        del settings
        self._folder = folder

    def build(self, corpus: Corpus) -> None:
        """Tokenize, index, save."""
        import bm25s

        index = bm25s.BM25()
        index.index(self._tokens(corpus.texts or []), show_progress=False)
        index.save(str(self._folder))
        (self._folder / "ids.json").write_text(json.dumps(corpus.ids), encoding="utf-8")

    def open(self) -> None:
        """Map."""
        import bm25s

        self._index = bm25s.BM25.load(str(self._folder), mmap=True)
        self._ids: list[str] = json.loads((self._folder / "ids.json").read_text(encoding="utf-8"))

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by text."""
        found, scores = self._index.retrieve(self._tokens([text]), k=min(k, len(self._ids)), show_progress=False)
        pairs = zip(found[0].tolist(), scores[0].tolist(), strict=True)
        return [(self._ids[number], score) for number, score in pairs]

    def _tokens(self, texts: list[str]) -> object:
        import bm25s
        import Stemmer

        return bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
