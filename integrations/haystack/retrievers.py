"""Retrievers of Haystack: components that find documents of a `QuarryDocumentStore`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from haystack import Document, component, default_from_dict, default_to_dict

from quarry.engine.arguments import checked_integer, shown
from quarry.engine.options import MAX_K
from quarry.formats.errors import InvalidSetting
from quarry.integrations.arguments import join_options
from quarry.integrations.asynchronous import on_thread
from quarry.integrations.haystack.store import QuarryDocumentStore

__all__ = ["QuarryBM25Retriever", "QuarryEmbeddingRetriever", "QuarryHybridRetriever", "QuarryRetriever"]

_Found = dict[str, list[Document]]


class _StoreRetriever:
    """Base class of the retrievers.

    Args:
        document_store: the store.
        top_k: number of passages.
        filters: filters of Haystack that all documents must pass; those of `run` take their place.
        options: further keywords of `quarry.engine.Engine.search`, such as `unit="document"` or `min_relevance`.

    Raises:
        InvalidSetting: the store or the options are not valid; when it runs, also if an option is one that the
            retriever sets itself.
    """

    def __init__(
        self,
        document_store: QuarryDocumentStore,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(document_store, QuarryDocumentStore):
            raise InvalidSetting(
                "the store is not one of Quarry", expected="a QuarryDocumentStore", actual=shown(document_store)
            )
        self.document_store = document_store
        self._top_k = checked_integer(top_k, "top_k", 1, MAX_K)
        self._filters = filters
        self._options = join_options(options)

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline stores of this component."""
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            top_k=self._top_k,
            filters=self._filters,
            options=self._options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make the retriever that `to_dict` described, and open its store."""
        parameters = data.get("init_parameters", {})
        stored = parameters.get("document_store")
        if isinstance(stored, Mapping):
            store = QuarryDocumentStore.from_dict(dict(stored))
            data = {**data, "init_parameters": {**parameters, "document_store": store}}
        return default_from_dict(cls, data)

    def _find(
        self,
        query: str | None,
        query_embedding: list[float] | None,
        mode: str,
        filters: Mapping[str, Any] | None,
        top_k: int | None,
    ) -> _Found:
        documents = self.document_store.search(
            query,
            self._top_k if top_k is None else checked_integer(top_k, "top_k", 1, MAX_K),
            self._filters if filters in (None, {}) else filters,  # no filters must not undo a restriction
            join_options(self._options, mode=mode),
            query_embedding,
        )
        return {"documents": documents}


@component
class QuarryEmbeddingRetriever(_StoreRetriever):
    """Finds passages by their embeddings; see `_StoreRetriever` for the arguments."""

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> _Found:
        """Return the passages with their scores, best first.

        Args:
            query_embedding: embedding of the query.
            filters: filters of Haystack; None or {}: those of the retriever.
            top_k: number of passages; None: that of the retriever.
        """
        return self._find(None, query_embedding, "dense", filters, top_k)

    run_async = on_thread(run)


@component
class QuarryBM25Retriever(_StoreRetriever):
    """Finds passages by the words of the query; see `_StoreRetriever` for the arguments."""

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> _Found:
        """Return the passages with their scores, best first.

        Args:
            query: the query.
            filters: filters of Haystack; None or {}: those of the retriever.
            top_k: number of passages; None: that of the retriever.
        """
        return self._find(query, None, "lexical", filters, top_k)

    run_async = on_thread(run)


@component
class QuarryHybridRetriever(_StoreRetriever):
    """Finds passages by embeddings and words; see `_StoreRetriever` for the arguments."""

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        query_embedding: list[float] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> _Found:
        """Return the passages with their scores, best first.

        Args:
            query: the query.
            query_embedding: embedding of the query, which a store with `embedding_dim` needs; None: that of the
                encoder.
            filters: filters of Haystack; None or {}: those of the retriever.
            top_k: number of passages; None: that of the retriever.
        """
        return self._find(query, query_embedding, "hybrid", filters, top_k)

    run_async = on_thread(run)


@component
class QuarryRetriever(_StoreRetriever):
    """Finds passages of a store that encodes texts, in any mode.

    Args:
        document_store: the store.
        top_k: number of passages.
        mode: "hybrid", "dense" (embeddings) or "lexical" (BM25).
        filters: filters of Haystack that all documents must pass; those of `run` take their place.
        options: further keywords of `quarry.engine.Engine.search`, such as `unit="document"` or `min_relevance`.
    """

    def __init__(
        self,
        document_store: QuarryDocumentStore,
        top_k: int = 10,
        mode: str = "hybrid",
        filters: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        # `component` makes another class of this one, which super() without arguments does not know
        _StoreRetriever.__init__(self, document_store, top_k, filters, options)
        self._mode = mode

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline stores of this component."""
        described = _StoreRetriever.to_dict(self)
        described["init_parameters"]["mode"] = self._mode
        return described

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> _Found:
        """Return the passages with their scores, best first.

        Args:
            query: the query.
            filters: filters of Haystack; None or {}: those of the retriever.
            top_k: number of passages; None: that of the retriever.
        """
        return self._find(query, None, self._mode, filters, top_k)

    run_async = on_thread(run)
