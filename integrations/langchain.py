"""LangChain: a vector store and a retriever on an index."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from quarry.engine import Document as StoredDocument
from quarry.engine import FunctionEncoder, Hit, Hits
from quarry.engine.arguments import check_names, checked_integer, shown
from quarry.engine.documents.given import id_list
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.functions.sources import embedding_source
from quarry.engine.options import MAX_K
from quarry.engine.process.libraries import importing
from quarry.formats.errors import InvalidSetting
from quarry.integrations.arguments import (
    checked_list,
    checked_query,
    checked_share,
    join_options,
    search_options,
)
from quarry.integrations.diverse_hits import mean_vectors, select_diverse
from quarry.integrations.open_index import OpenIndex
from quarry.integrations.passages import describe, passage_id

with importing("langchain"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
    from pydantic import ConfigDict, Field, model_validator

__all__ = ["QuarryRetriever", "QuarryVectorStore"]

Filter = Mapping[str, object]


class QuarryVectorStore(VectorStore):
    """A vector store whose documents are those of an index, which other programs can use too.

    Searches return passages: a short document as it was added, of a longer one the part that matches, with
    the fields of docs/integrations.md in the metadata, and an id of its own, such as "book#12". Fields of the
    document with the same names keep their values. Searches with scores, and `QuarryRetriever`, describe all
    documents, and have the score and the relevance in the metadata. Searches are hybrid, and take the keywords of
    `quarry.engine.Engine.search`: `unit` ("document" for whole ones), `filter`, `min_relevance`, `mode` and so on.
    Every change is one commit.

    Args:
        path: folder of the index; an empty one is created if there is none.
        embedding: embeds documents and queries; None: the encoder that comes with Quarry. Its attribute `model`,
            `model_name` or `model_id`, or else the name of its class, is stored in the index, which then needs
            embeddings of that name; to choose it, give a `quarry.engine.FunctionEncoder` made with a name.
        wait_s: seconds that a change waits for another process that is writing.

    Raises:
        EncoderMismatch: the index was made with other embeddings.
    """

    def __init__(
        self, path: str | os.PathLike[str], embedding: Embeddings | Encoder | None = None, *, wait_s: float = 30
    ) -> None:
        self._embedding = embedding if isinstance(embedding, Embeddings) else None
        encoder = _open_embeddings(embedding) if isinstance(embedding, Embeddings) else embedding
        self._index = OpenIndex(path, encoder, wait_s)

    @property
    def embeddings(self) -> Embeddings | None:
        """The embeddings given by the caller; None: those of the encoder that comes with Quarry."""
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts in one commit, and return their ids; one with the id of another replaces it.

        Args:
            texts: the texts.
            metadatas: metadata of each.
            ids: their ids; None, or None among them: new random ids.
            **kwargs: `batch_size`, which the indexing API of LangChain gives, is ignored: it is one commit.

        Raises:
            ValueError: there is not one metadata, or one id, for each text.
            InvalidSetting: the texts, their metadata or ids are not lists, or there is another keyword.
            InvalidDocument: a text or its metadata cannot be indexed; nothing is added.
        """
        check_names(kwargs, ("metadatas", "ids", "batch_size"))
        contents = checked_list(texts, "texts")
        columns: dict[str, list[Any]] = {}
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            columns[name] = [None] * len(contents) if values is None else checked_list(values, name)
            if len(columns[name]) != len(contents):
                raise ValueError(f"{len(columns[name])} {name} for {len(contents)} texts")
        names = [str(uuid.uuid4()) if name in (None, "") else name for name in columns["ids"]]
        documents = [
            {"id": name, "text": text, "metadata": metadata}
            for name, text, metadata in zip(names, contents, columns["metadatas"], strict=True)
        ]
        self._index.write(lambda index: index.add(documents))
        return names

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Add documents in one commit, and return their ids; see `add_texts`.

        Raises:
            InvalidSetting: they are not a list of documents.
        """
        given = checked_list(documents, "documents")
        for each in given:
            if not isinstance(each, Document):
                raise InvalidSetting("not a document", expected="a Document of LangChain", actual=shown(each))
        return super().add_documents(given, **kwargs)

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents in one commit; ids that no document has are ignored.

        Args:
            ids: ids of documents; None: nothing is deleted.
            **kwargs: there are none.

        Raises:
            InvalidSetting: there is another keyword.
        """
        check_names(kwargs, ("ids",))
        if ids:
            self._index.write(lambda index: index.delete(ids))
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; ids that no document has are ignored."""
        return [_from_stored(each) for each in self._index.reader().get(list(dict.fromkeys(id_list(ids))))]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the `k` best passages; keywords are those of `quarry.engine.Engine.search`.

        Raises:
            InvalidQuery: the query is not a text, or cannot be searched for.
            InvalidSetting: a keyword is unknown, has a wrong value, or is an argument of this method.
        """
        return [_as_added(hit) for hit in self._search(query, k, kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the `k` best passages, all described, with `Hit.score`, which ranks them."""
        return [(_from_hit(hit), hit.score) for hit in self._search(query, k, kwargs)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the `k` passages with the best inner products with a vector."""
        return [_as_added(hit) for hit in self._search_vector(embedding, k, kwargs)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return passages that are relevant and differ from each other (Carbonell and Goldstein 1998).

        Args:
            query: the query.
            k: number of passages.
            fetch_k: number of hits that they are selected from.
            lambda_mult: 1 selects by similarity to the query alone, 0 by difference from those selected before.
            **kwargs: of `quarry.engine.Engine.search`.
        """
        hits = self._search(query, fetch_k, kwargs)
        return self._select_diverse(self._index.encoder.encode_query(query), hits, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Do the same as `max_marginal_relevance_search` for the vector of a query."""
        hits = self._search_vector(embedding, fetch_k, kwargs)
        return self._select_diverse(np.asarray(embedding, np.float32), hits, k, lambda_mult)

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return a retriever of LangChain; options of a search belong to its keyword `search_kwargs`.

        Raises:
            InvalidSetting: it has no such keyword; LangChain would ignore it.
        """
        check_names(kwargs, ("search_type", "search_kwargs", "name", "tags", "metadata"))
        return super().as_retriever(**kwargs)

    @classmethod
    def from_texts(  # type: ignore[override]  # embeddings are optional here
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: str | os.PathLike[str],
        **kwargs: Any,
    ) -> Self:
        """Open the vector store at `path`, and add texts."""
        store = cls(path, embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(  # type: ignore[override]  # embeddings are optional here
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Do the same as `from_texts`, on a thread."""
        return await asyncio.to_thread(cls.from_texts, texts, embedding, metadatas, **kwargs)

    @classmethod
    def from_documents(  # type: ignore[override]  # embeddings are optional here
        cls, documents: list[Document], embedding: Embeddings | None = None, **kwargs: Any
    ) -> Self:
        """Open the vector store at the keyword `path`, and add documents."""
        return super().from_documents(documents, embedding, **kwargs)  # type: ignore[arg-type]

    @classmethod
    async def afrom_documents(  # type: ignore[override]  # embeddings are optional here
        cls, documents: list[Document], embedding: Embeddings | None = None, **kwargs: Any
    ) -> Self:
        """Do the same as `from_documents`, on a thread."""
        return await asyncio.to_thread(cls.from_documents, documents, embedding, **kwargs)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the `k` best passages, all described, with `quarry.engine.Hit.relevance`; cosines without it."""
        hits = self._search(query, k, kwargs)
        if any(hit.relevance is None for hit in hits):
            vector = self._index.encoder.encode_query(query)
            vectors = mean_vectors(self._index.reader(), hits, self._index.encoder.dim)
            cosines = vectors @ (vector / max(float(np.linalg.norm(vector)), 1e-12))
            return [
                (_from_hit(hit), min(1.0, max(0.0, float(cosine))))
                for hit, cosine in zip(hits, cosines, strict=True)
            ]
        return [(_from_hit(hit), float(hit.relevance or 0)) for hit in hits]

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Do the same as `_similarity_search_with_relevance_scores`, on a thread."""
        return await asyncio.to_thread(self._similarity_search_with_relevance_scores, query, k, **kwargs)

    def _search(self, query: object, k: int, options: Mapping[str, Any]) -> Hits:
        return self._index.searcher.search(**search_options(options, queries=checked_query(query), k=k))

    def _search_vector(self, embedding: object, k: int, options: Mapping[str, Any]) -> Hits:
        hits = self._index.searcher.search_vectors(**search_options(options, queries=[embedding], k=k))
        return hits[0]

    def _select_diverse(
        self, query: npt.NDArray[np.float32], hits: Sequence[Hit], k: int, lambda_mult: float
    ) -> list[Document]:
        n_wanted, weight = checked_integer(k, "k", 1, MAX_K), checked_share(lambda_mult, "lambda_mult")
        return [_as_added(hit) for hit in select_diverse(self._index.reader(), query, hits, n_wanted, weight)]


class QuarryRetriever(BaseRetriever):
    """A retriever of the passages of an index, all with the fields of docs/integrations.md in their metadata.

    Attributes:
        store: the vector store that is searched.
        k: number of passages; those in `search_kwargs`, if it is given there.
        search_kwargs: keywords of `quarry.engine.Engine.search`: `unit`, `filter`, `min_relevance` and so on.

    Raises:
        InvalidSetting: `k` is given twice, or there is an unknown keyword; options of a search belong to
            `search_kwargs`.
    """

    store: QuarryVectorStore
    k: int = 4
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: object) -> object:
        if isinstance(given, dict):
            check_names(given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if "k" in self.model_fields_set:
            join_options(self.search_kwargs, k=self.k)
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **kwargs: Any
    ) -> list[Document]:
        options = {"k": self.k, **self.search_kwargs, **kwargs}
        if k is not None:
            options["k"] = k
        found = self.store.similarity_search_with_score(**join_options(options, query=checked_query(query)))
        return [document for document, _ in found]


def _open_embeddings(embedding: Embeddings) -> Encoder:
    name = embedding_source(embedding).name or f"{type(embedding).__module__}.{type(embedding).__qualname__}"
    return FunctionEncoder(embedding, name=name)


def _from_hit(hit: Hit) -> Document:
    return Document(id=passage_id(hit), page_content=hit.text, metadata=describe(hit) | dict(hit.metadata))


def _as_added(hit: Hit) -> Document:
    """Return a hit without its scores, and without a description if it is a whole document that was no file.

    LangChain expects of a vector store the documents that were added, and recognizes those that several queries
    find as equal.
    """
    is_described = hit.is_part or "file" in hit.metadata
    known = describe(hit, is_scored=False) if is_described else {}
    return Document(id=passage_id(hit), page_content=hit.text, metadata=known | dict(hit.metadata))


def _from_stored(document: StoredDocument) -> Document:
    return Document(id=document.id, page_content=document.text, metadata=dict(document.metadata))
