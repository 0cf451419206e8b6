"""LlamaIndex: a vector store and a retriever on an index."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from quarry.engine import Document, Engine, Hit, open_encoder
from quarry.engine.arguments import check_names, checked_integer, checked_seconds, shown
from quarry.engine.choices import Mode
from quarry.engine.documents.given import id_list
from quarry.engine.encoding.opening import EncoderSource
from quarry.engine.options import MAX_K
from quarry.engine.process.libraries import importing
from quarry.formats.errors import InvalidDocument, InvalidQuery, InvalidSetting
from quarry.formats.system_errors import checked_path
from quarry.integrations.arguments import (
    check_embedding,
    checked_list,
    checked_query,
    checked_share,
    join_options,
    search_options,
)
from quarry.integrations.asynchronous import on_thread
from quarry.integrations.diverse_hits import select_diverse
from quarry.integrations.open_index import OpenIndex
from quarry.integrations.passages import describe, passage_id, start_in_text

with importing("llama-index"):
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.schema import (
        BaseNode,
        MetadataMode,
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
    from llama_index.core.vector_stores import MetadataFilters, VectorStoreQuery, VectorStoreQueryResult
    from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryMode
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

    from quarry.integrations.llama_index_filters import (
        Filter,
        checked_filters,
        is_without_conditions,
        translate_filters,
    )

__all__ = ["QuarryRetriever", "QuarryVectorStore"]

_MODES: Mapping[VectorStoreQueryMode, Mode] = {
    VectorStoreQueryMode.DEFAULT: "dense",
    VectorStoreQueryMode.MMR: "dense",
    VectorStoreQueryMode.SPARSE: "lexical",
    VectorStoreQueryMode.TEXT_SEARCH: "lexical",
    VectorStoreQueryMode.HYBRID: "hybrid",
}
_NODE_FIELDS = ("_node_content", "_node_type", "document_id", "doc_id", "ref_doc_id")  # of all its stores
_FOR_PROGRAMS = ("document_id", "passage", "start_index", "headings", "file")
"""Metadata of a passage that is not written into prompts, and not embedded; its place has the headings."""
_MMR_THRESHOLD = 0.5  # the default of LlamaIndex
_MMR_PREFETCHED = 4  # hits to select from, for each node that is requested


class QuarryVectorStore(BasePydanticVectorStore):
    """A vector store whose nodes are documents of an index, which other programs can use too.

    Without `dim`, the texts of nodes (without their metadata) and of queries are encoded by the encoder of the
    index, and embeddings of nodes are not used: give a `VectorStoreIndex` ``MockEmbedding(embed_dim=1)``, which
    computes none. With `dim`, the embeddings of nodes are stored, and queries need one, except in the modes SPARSE
    and TEXT_SEARCH. Every change is one commit, so there is nothing to persist.

    Queries return passages, with the fields of docs/integrations.md in the metadata; fields of the node with
    the same names keep their values. A passage of a longer node has an id of its own, such as "book#12", and the
    node as its parent.

    Empty lists in metadata count as None for filters.

    Args:
        path: folder of the index; an empty one is created if there is none.
        encoder: the encoder of the index; None: the bundled one. See `quarry.engine.open_encoder`.
        dim: length of the embeddings of an index without an encoder; None: texts are encoded.
        metric: with `dim`, how embeddings are compared: "cosine", "ip" or "l2".
        wait_s: seconds that a change waits for another process that is writing.

    Raises:
        EncoderMismatch: the vectors of the index are of another encoder.
        InvalidSetting: the index has embeddings of another length, or another metric; or an encoder and `dim` are
            given.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    path: str
    dim: int | None = None
    metric: str = "cosine"
    wait_s: float = 30
    encoder: Any = Field(default=None, exclude=True)

    _index: OpenIndex = PrivateAttr()

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: EncoderSource = None,
        *,
        dim: int | None = None,
        metric: str = "cosine",
        wait_s: float = 30,
        **kwargs: Any,
    ) -> None:
        check_names(kwargs, type(self).model_fields)
        if dim is not None and encoder is not None:
            raise InvalidSetting("an encoder and the length of embeddings are given", expected="one of them")
        if dim is not None:
            checked_integer(dim, "dim", 1, sys.maxsize)
        fields = {
            "path": str(checked_path(path, "path").absolute()),  # a copy may be in another folder
            "encoder": encoder,
            "dim": dim,
            "metric": metric,
            "wait_s": checked_seconds(wait_s, "wait_s"),
        }
        super().__init__(**{**kwargs, **fields, "stores_text": True, "is_embedding_query": dim is not None})
        opened = None if encoder is None else open_encoder(encoder)
        self._index = OpenIndex(self.path, opened, wait_s, dim=dim, metric=metric)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class for serialization."""
        return "QuarryVectorStore"

    @property
    def client(self) -> Engine:
        """The index at its newest generation, open for reading."""
        return self._index.reader()

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes in one commit, and return their ids; a node with the id of another replaces it.

        Raises:
            InvalidDocument: a node has no text, or with `dim` no embedding of this length, or its metadata cannot
                be indexed. Nothing is added then.
            InvalidSetting: there is another keyword.
        """
        check_names(kwargs, ("nodes",))
        given = checked_list(nodes, "nodes")
        documents = [self._document(node) for node in given]
        if documents:
            self._index.write(lambda index: index.add(documents))
        return [node.node_id for node in given]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a source document in one commit.

        Raises:
            InvalidSetting: the id of the source document is not a text, or there is another keyword.
        """
        check_names(delete_kwargs, ("ref_doc_id",))
        if not isinstance(ref_doc_id, str):
            raise InvalidSetting(
                "ref_doc_id is not a text", expected="a str", actual=shown(ref_doc_id), setting="ref_doc_id"
            )
        self._index.write(lambda index: _delete_of_sources(index, ref_doc_id))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes with these ids that pass the filters, in one commit; see `clear` for all nodes.

        Raises:
            InvalidSetting: neither ids nor filters are given, the filters are empty, or there is another keyword.
            InvalidFilter: the filters cannot be translated, or compare values of different types.
        """
        check_names(delete_kwargs, ("node_ids", "filters"))
        filters = checked_filters(filters)
        if node_ids is None and filters is None:
            raise InvalidSetting("node_ids or filters say what to delete", expected="at least one of them")
        if node_ids is None and filters is not None and is_without_conditions(filters):
            raise InvalidSetting("the filters are empty", expected="a condition; clear() deletes all nodes")
        condition = None if filters is None else translate_filters(filters)

        def remove(index: Engine) -> int:
            if node_ids is None:
                return index.delete(filter=condition)
            return index.delete(_passing(index, node_ids, condition))

        self._index.write(remove)

    def clear(self) -> None:
        """Delete all nodes in one commit."""
        self._index.write(lambda index: index.delete(index.ids()))

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes with these ids, in their order, that pass the filters; all nodes if neither is given.

        With `dim`, nodes have their embeddings, as `quarry.engine.Engine.get` returns them.

        Raises:
            InvalidFilter: the filters cannot be translated, or compare values of different types.
        """
        filters = checked_filters(filters)
        condition = None if filters is None else translate_filters(filters)
        index = self._index.reader()
        ids = list(index.ids(filter=condition)) if node_ids is None else _passing(index, node_ids, condition)
        return [_node(each) for each in index.get(ids, vectors=self.dim is not None)]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best passages of nodes with `Hit.score`, by which they are ranked.

        The modes are DEFAULT (embeddings), SPARSE and TEXT_SEARCH (BM25), HYBRID (both, `alpha` is the weight of
        embeddings), and MMR (embeddings, nodes that differ from each other). A query with filters, `doc_ids` or
        `node_ids` alone finds the first nodes that pass them, without similarities. An empty list of ids allows no
        node.

        Args:
            query: with a text; with `dim` also with an embedding.
            **kwargs: keywords of `quarry.engine.Engine.search`, such as `unit="document"` for whole nodes; in the
                mode MMR also `mmr_threshold` (1 selects by similarity to the query alone, 0 by difference alone;
                .5 by default) and `mmr_prefetch_k`, the number of nodes to select from (4 times those requested by
                default).

        Raises:
            InvalidSetting: another mode, or a keyword that is unknown, has a wrong value, or that the query sets.
            InvalidQuery: the query has no text, or no embedding, that its mode needs.
            InvalidFilter: the filters cannot be translated, or compare values of different types.
        """
        query = _as_meant(query)
        if _checked_mode(query.mode) not in _MODES:
            raise _unknown_mode(query.mode)
        if query.query_str is None and query.query_embedding is None and _condition(query) is not None:
            found = self._list(query, join_options(kwargs))
            return VectorStoreQueryResult([_node(each) for each in found], ids=[each.id for each in found])
        if query.mode == VectorStoreQueryMode.MMR:
            hits = self._search_diverse(query, kwargs)
        else:
            hits = self._search(query, _n_requested(query), kwargs)
        nodes = [_passage_node(hit) for hit in hits]
        return VectorStoreQueryResult(nodes, [hit.score for hit in hits], [node.node_id for node in nodes])

    async_add = on_thread(add)  # type: ignore[arg-type]  # mypy takes `self` for the base class, here and below
    adelete = on_thread(delete)  # type: ignore[arg-type]
    adelete_nodes = on_thread(delete_nodes)  # type: ignore[arg-type]
    aclear = on_thread(clear)
    aget_nodes = on_thread(get_nodes)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Do the same as `query`, on a thread."""
        return await asyncio.to_thread(self.query, _as_meant(query), **kwargs)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _document(self, node: object) -> dict[str, object]:
        if not isinstance(node, BaseNode):
            raise InvalidDocument("not a node", expected="a BaseNode", actual=shown(node))
        text = node.get_content(metadata_mode=MetadataMode.NONE)
        content = node_to_metadata_dict(node, remove_text=True)
        values = {**node.metadata, **{name: content[name] for name in _NODE_FIELDS}}
        metadata = {name: None if value == [] else value for name, value in values.items()}
        document: dict[str, object] = {"id": node.node_id, "text": text, "metadata": metadata}
        if self.dim is None:
            return document
        check_embedding(node.embedding, self.dim, f"node {node.node_id!r}")
        return {**document, "vectors": node.embedding}

    def _list(self, query: VectorStoreQuery, options: Mapping[str, Any]) -> list[Document]:
        """Return the first documents that pass the filters of a query."""
        if options:
            raise InvalidSetting(
                "a query without a text or an embedding is no search", expected="no keywords", actual=list(options)
            )
        k = checked_integer(_n_requested(query), "k", 1, MAX_K)
        index = self._index.reader()
        only = _condition(query)
        ids = _passing(index, query.node_ids, only) if query.node_ids else index.ids(filter=only)
        return index.get(list(islice(ids, k)))

    def _search(self, query: VectorStoreQuery, k: int, options: Mapping[str, Any]) -> list[Hit]:
        mode = _MODES[query.mode]
        text, vector = self._given(query, mode)
        only = _condition(query)
        weight = query.alpha if mode == "hybrid" else None
        own = {"queries": text, "vector": vector, "mode": mode, "filter": only, "dense_weight": weight}
        if query.node_ids is None:
            return self._index.searcher.search(**search_options(options, k=k, **own))
        index = self._index.reader()
        wanted = set(query.node_ids)
        passing = list(index.ids(filter=only))
        n_others = len(passing) - len(wanted.intersection(passing))  # such a value is in their own field "id"
        n_searched = checked_integer(k, "k", 1, MAX_K) + n_others
        while True:
            hits = index.search(**search_options(options, k=min(n_searched, MAX_K), **own))
            found = [hit for hit in hits if hit.id in wanted][:k]
            if len(found) == k or len(hits) < n_searched:
                return found
            n_searched *= 2  # the others have several passages each

    def _search_diverse(self, query: VectorStoreQuery, options: Mapping[str, Any]) -> list[Hit]:
        rest = dict(options)
        threshold = rest.pop("mmr_threshold", query.mmr_threshold)
        weight = _MMR_THRESHOLD if threshold is None else checked_share(threshold, "mmr_threshold")
        k = checked_integer(query.similarity_top_k, "similarity_top_k", 1, MAX_K)
        n_prefetched = rest.pop("mmr_prefetch_k", None)
        if n_prefetched is None:
            n_prefetched = _MMR_PREFETCHED * k
        checked_integer(n_prefetched, "mmr_prefetch_k", 1, MAX_K)
        text, vector = self._given(query, "dense")
        hits = self._search(query, max(k, n_prefetched), rest)
        if vector is None:
            vector = self._index.encoder.encode_query(text or "").tolist()
        return select_diverse(self._index.reader(), vector, hits, k, weight)

    def _given(self, query: VectorStoreQuery, mode: Mode) -> tuple[str | None, list[float] | None]:
        """Return text and vector of a query, as far as they are used in the mode.

        Raises:
            InvalidQuery: one of them is missing.
        """
        needs_vector = self.dim is not None and mode != "lexical"
        needs_text = mode != "dense" or (self.dim is None and query.query_embedding is None)
        if query.query_str is not None:
            checked_query(query.query_str)
        if needs_text and query.query_str is None:
            raise InvalidQuery(f"a query in mode {query.mode.value!r} has no text", expected="query_str")
        if needs_vector and query.query_embedding is None:
            raise InvalidQuery(
                f"a query in mode {query.mode.value!r} has no embedding", expected="query_embedding"
            )
        is_encoded = self.dim is None and query.query_str is not None
        text = query.query_str if mode != "dense" or is_encoded else None
        return text, None if mode == "lexical" or is_encoded else query.query_embedding


class QuarryRetriever(BaseRetriever):
    """Retrieves nodes of a `QuarryVectorStore` for texts, without a `VectorStoreIndex`.

    Args:
        store: the vector store.
        similarity_top_k: number of passages.
        mode: mode of the queries, see `QuarryVectorStore.query`.
        filters: metadata filters that all nodes must pass.
        options: further keywords of `quarry.engine.Engine.search`, such as `min_relevance` or `unit="document"`.
        **kwargs: of `BaseRetriever`.
    """

    def __init__(
        self,
        store: QuarryVectorStore,
        similarity_top_k: int = 10,
        mode: VectorStoreQueryMode | str = VectorStoreQueryMode.HYBRID,
        filters: MetadataFilters | None = None,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(store, QuarryVectorStore):
            raise InvalidSetting(
                "the store is not one of Quarry", expected="a QuarryVectorStore", actual=shown(store)
            )
        self._store = store
        self._similarity_top_k = similarity_top_k
        self._mode = _checked_mode(mode)
        self._filters = checked_filters(filters)
        self._options = join_options(options)
        super().__init__(**kwargs)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _scored(self._store.query(self._query(query_bundle), **self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _scored(await self._store.aquery(self._query(query_bundle), **self._options))

    def _query(self, query_bundle: QueryBundle) -> VectorStoreQuery:
        return VectorStoreQuery(
            query_embedding=query_bundle.embedding,
            query_str=query_bundle.query_str,
            similarity_top_k=self._similarity_top_k,
            mode=self._mode,
            filters=self._filters,
        )


def _as_meant(query: VectorStoreQuery) -> VectorStoreQuery:
    """Return a query; without its ids of nodes if they are an empty list of an index of LlamaIndex.

    Such an index lists no nodes if the store has their texts, and its retriever means all of them. Nothing but the
    caller tells its query from one of an application, for which an empty list allows nothing.
    """
    if not isinstance(query, VectorStoreQuery):
        raise InvalidQuery("not a query", expected="a VectorStoreQuery", actual=shown(query))
    frame = inspect.currentframe() if query.node_ids == [] else None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("llama_index.core.indices."):
            return replace(query, node_ids=None)
        frame = frame.f_back
    return query


def _checked_mode(mode: object) -> VectorStoreQueryMode:
    try:
        return VectorStoreQueryMode(mode)
    except ValueError:
        raise _unknown_mode(mode) from None


def _unknown_mode(mode: object) -> InvalidSetting:
    name = mode.value if isinstance(mode, VectorStoreQueryMode) else shown(mode)
    return InvalidSetting("unsupported query mode", expected=", ".join(each.value for each in _MODES), actual=name)


def _scored(found: VectorStoreQueryResult) -> list[NodeWithScore]:
    pairs = zip(found.nodes or [], found.similarities or [], strict=True)
    return [NodeWithScore(node=node, score=score) for node, score in pairs]


def _n_requested(query: VectorStoreQuery) -> int:
    """Return the number of nodes: that of the mode, if it is given."""
    if query.mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH):
        return query.similarity_top_k if query.sparse_top_k is None else query.sparse_top_k
    if query.mode == VectorStoreQueryMode.HYBRID:
        return query.similarity_top_k if query.hybrid_top_k is None else query.hybrid_top_k
    return query.similarity_top_k


def _condition(query: VectorStoreQuery) -> Filter | None:
    """Return the filters, source documents and ids of a query as one filter; None: there are none."""
    parts: list[Filter] = []
    filters = checked_filters(query.filters)
    if filters is not None and not is_without_conditions(filters):
        parts.append(translate_filters(filters))
    if query.doc_ids is not None:
        parts.append({"ref_doc_id": {"$in": checked_list(query.doc_ids, "doc_ids")}})
    if query.node_ids is not None:
        parts.append({"id": {"$in": checked_list(query.node_ids, "node_ids")}})
    return {"$and": parts} if parts else None


def _passing(index: Engine, node_ids: Sequence[str], condition: Filter | None) -> list[str]:
    """Return the ids of those of some documents that pass a filter."""
    ids = list(dict.fromkeys(id_list(node_ids)))
    if not condition or not ids:
        return ids
    passing = set(index.ids(filter={"$and": [{"id": {"$in": ids}}, condition]}))
    return [each for each in ids if each in passing]


def _delete_of_sources(index: Engine, ref_doc_id: str) -> int:
    if not index.count({"ref_doc_id": {"$exists": True}}):  # otherwise the engine would warn of an unknown field
        return 0
    return index.delete(filter={"ref_doc_id": ref_doc_id})


def _passage_node(hit: Hit) -> BaseNode:
    """Return a hit as the node that its document was made of, with its own text and a description.

    The description has no scores: LlamaIndex fuses the results of several queries by nodes of equal metadata.
    """
    node = _node(hit)
    known = {name: each for name, each in describe(hit, is_scored=False).items() if name not in node.metadata}
    node.metadata = known | node.metadata
    hidden = [name for name in _FOR_PROGRAMS if name in known or name == "file"]
    node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, *hidden]
    node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, *hidden]
    if hit.is_part:
        node.id_ = passage_id(hit)
        node.relationships[NodeRelationship.PARENT] = RelatedNodeInfo(node_id=hit.id)
        if isinstance(node, TextNode):  # whose places are those in its source document
            start = (node.start_char_idx or 0) + (start_in_text(hit) or 0)
            node.start_char_idx, node.end_char_idx = start, start + len(hit.text)
    return node


def _node(found: Hit | Document) -> BaseNode:
    """Return the node that a document was made of; a new one for a document of another program."""
    metadata = dict(found.metadata)
    if "_node_content" in metadata:
        node = metadata_dict_to_node(metadata, text=found.text)
    else:
        node = TextNode(id_=found.id, text=found.text, metadata=metadata)
    if isinstance(found, Document) and found.vectors is not None and len(found.vectors) == 1:
        node.embedding = found.vectors[0].tolist()
    return node
