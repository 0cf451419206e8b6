"""Quarry behind MTEB's `SearchProtocol`: ``mteb.evaluate(MtebSearch(), task)``; and tasks of local collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.model_meta import ModelMeta, ScoringFunction

from bench.data.collections import Collection
from bench.data.trec_run import Run
from bench.suites.corpus_index import CorpusIndex
from quarry.engine import Encoder, __version__, open_encoder
from quarry.engine.choices import Mode
from quarry.formats.errors import InvalidQuery

__all__ = ["MtebSearch", "local_task"]

_MODEL_TYPES: Mapping[Mode, Any] = {"hybrid": "hybrid", "dense": "dense", "lexical": "sparse"}


class MtebSearch:
    """A model of MTEB that is an index and not an encoder.

    Args:
        mode: "hybrid", "dense" or "lexical".
        encoder: of the index; None: the bundled one.
    """

    def __init__(self, mode: Mode = "hybrid", encoder: Encoder | None = None) -> None:
        self._mode: Mode = mode
        self._encoder = open_encoder(encoder)
        self._index: CorpusIndex | None = None

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The description of the model that MTEB records."""
        return ModelMeta(
            loader=None,
            name=f"quarry/{self._mode}",
            revision=f"{__version__}-{self._encoder.identity}",
            release_date=None,
            languages=None,
            n_parameters=None,
            memory_usage_mb=None,
            max_tokens=None,
            embed_dim=self._encoder.dim,
            license="apache-2.0",
            open_weights=True,
            public_training_code=None,
            public_training_data=None,
            framework=["ONNX", "NumPy"],
            similarity_fn_name=ScoringFunction.CUSTOM,
            use_instructions=False,
            training_datasets=None,
            model_type=[_MODEL_TYPES[self._mode]],
        )

    def index(self, corpus: Sequence[Mapping[str, Any]], **_: Any) -> None:  # noqa: ANN401
        """Build an index of a corpus, and delete the one of the previous call.

        Args:
            corpus: rows with ``id``, ``text`` and, if there is one, ``title``.
        """
        self.close()
        self._index = CorpusIndex(corpus, self._encoder)

    def search(
        self,
        queries: Sequence[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,  # noqa: ANN401
    ) -> Run:
        """Return ids and scores of the `top_k` best documents of each query.

        Args:
            queries: rows with ``id``, ``text`` and, if there is one, ``instruction``.
            top_k: number of documents.
            top_ranked: in reranking tasks, the ids of the documents to be ranked for each query.

        Raises:
            RuntimeError: there is no index yet.
            InvalidQuery: a query is a conversation.
        """
        if self._index is None:
            raise RuntimeError("search was called before index")
        texts = {row["id"]: _text(row) for row in queries}
        return self._index.run(texts, top_k, self._mode, top_ranked)

    def close(self) -> None:
        """Delete the index."""
        if self._index is not None:
            self._index.close()
            self._index = None


def local_task(collection: Collection) -> AbsTaskRetrieval:
    """Return a retrieval task of MTEB with the documents, queries and judgments of a collection."""

    class LocalTask(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name=f"Local {collection.name}",
            description=f"The collection {collection.name} of this machine.",
            dataset={"path": "local", "revision": "local"},
            type="Retrieval",
            category="t2t",
            eval_splits=[collection.split],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *_: object, **__: object) -> None:
            corpus = [{"id": name, "text": text, "title": ""} for name, text in collection.documents.items()]
            queries = [{"id": name, "text": text} for name, text in collection.queries.items()]
            split: Any = {
                "corpus": Dataset.from_list(corpus),
                "queries": Dataset.from_list(queries),
                "relevant_docs": {name: dict(scores) for name, scores in collection.qrels.items()},
                "top_ranked": None,
            }
            self.dataset = {"default": {collection.split: split}}
            self.data_loaded = True

    return LocalTask()


def _text(row: Mapping[str, Any]) -> str:
    """Return the text of a query, followed by its instruction."""
    text, instruction = row["text"], row.get("instruction")
    if not isinstance(text, str):
        raise InvalidQuery(f"query {row['id']!r} is a conversation", expected="a text")
    return f"{text} {instruction}" if instruction else text
