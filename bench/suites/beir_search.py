"""Quarry behind BEIR's `BaseSearch`: ``EvaluateRetrieval(BeirSearch()).retrieve(corpus, queries)``."""

from __future__ import annotations

from typing import Any, NoReturn

from beir.retrieval.search.base import BaseSearch

from bench.data.trec_run import Run
from bench.suites.corpus_index import CorpusIndex
from quarry.engine import Encoder
from quarry.engine.choices import Mode

__all__ = ["BeirSearch"]


class BeirSearch(BaseSearch):
    """Builds an index of the corpus for each call, and searches it; BEIR's score functions are not used.

    Args:
        mode: "hybrid", "dense" or "lexical".
        encoder: of the index; None: the bundled one.
    """

    def __init__(self, mode: Mode = "hybrid", encoder: Encoder | None = None) -> None:
        self._mode: Mode = mode
        self._encoder = encoder

    def search(
        self,
        corpus: dict[str, dict[str, str]],
        queries: dict[str, str],
        top_k: int,
        *_: Any,  # noqa: ANN401  # the score function
        **__: Any,  # noqa: ANN401
    ) -> Run:
        """Return ids and scores of the `top_k` best documents of each query.

        Args:
            corpus: ``title`` and ``text`` by document id.
            queries: text by query id.
            top_k: number of documents.
        """
        documents = ({"id": name, **entry} for name, entry in corpus.items())
        with CorpusIndex(documents, self._encoder) as index:
            return index.run(queries, top_k, self._mode)

    def encode(self, *_: object, **__: object) -> NoReturn:
        """Raise an error: an index is not a file of one vector for each document.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("an index holds several vectors of a document: use retrieve, which searches it")

    def search_from_files(self, *_: object, **__: object) -> NoReturn:
        """Raise an error, see `encode`.

        Raises:
            NotImplementedError: always.
        """
        self.encode()
