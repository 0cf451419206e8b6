"""txtai: an embeddings index with content, its default settings, vectors from the caller.

As https://neuml.github.io/txtai/embeddings/configuration/vectors/ describes for ``method: external``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
import numpy.typing as npt

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("torch==2.13.0", "txtai")
IMPORTS = ("txtai",)


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`."""

    def build(self, corpus: Corpus) -> None:
        """Index texts with given vectors, save."""
        texts = corpus.texts or corpus.ids
        self._vectors: dict[str, Vector] = dict(zip(texts, corpus.vectors, strict=True))
        content = corpus.texts is not None
        index = import_module("txtai").Embeddings(method="external", transform=self._transform(), content=content)
        index.index((name, text, None) for name, text in zip(corpus.ids, texts, strict=True))
        index.save(str(self._folder))

    def open(self) -> None:
        """Load."""
        self._index = import_module("txtai").Embeddings()
        self._index.load(str(self._folder), config={"transform": self._transform()})

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by text, with a given vector."""
        self._vectors = {text: vector}
        return [(hit["id"], hit["score"]) for hit in self._index.search(text, k)]

    def _transform(self) -> Callable[[list[str]], npt.NDArray[np.float32]]:
        """Return a function from texts to vectors; txtai does not accept other callables."""

        def look_up(texts: list[str]) -> npt.NDArray[np.float32]:
            return np.stack([self._vectors[text] for text in texts])

        return look_up
