"""bm25s: lexical search, English stop words and stemmer, mapped from disk.

As the README recommends (https://github.com/xhluca/bm25s): a stemmer, ``mmap=True``.
"""

from __future__ import annotations

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("bm25s", "PyStemmer", "numba")
IMPORTS = ("bm25s", "numba", "Stemmer")


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`; texts are not stored, vectors not used."""

    def build(self, corpus: Corpus) -> None:
        """Tokenize, index, save."""
        import bm25s

        index = bm25s.BM25()
        index.index(self._tokens(corpus.texts or []), show_progress=False)
        index.save(str(self._folder))
        self._write_ids(corpus.ids)

    def open(self) -> None:
        """Map the index."""
        import bm25s

        self._index = bm25s.BM25.load(str(self._folder), mmap=True)
        self._read_ids()

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by text."""
        numbers, scores = self._index.retrieve(self._tokens([text]), k=min(k, len(self._ids)), show_progress=False)
        return self._to_hits(numbers[0].tolist(), scores[0].tolist())

    def _tokens(self, texts: list[str]) -> object:
        import bm25s
        import Stemmer

        return bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
