"""A document store of Haystack on an index."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from haystack import Document, default_from_dict, default_to_dict
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy

from quarry.engine import Document as StoredDocument
from quarry.engine import Engine, Hit
from quarry.engine.arguments import checked_integer, shown
from quarry.formats.errors import InvalidQuery, InvalidSetting
from quarry.formats.system_errors import checked_path
from quarry.integrations.arguments import check_embedding, checked_list, checked_query, search_options
from quarry.integrations.asynchronous import on_thread
from quarry.integrations.haystack.filters import (
    Filters,
    filter_errors,
    metadata_path,
    require_filters,
    translate_filters,
)
from quarry.integrations.open_index import OpenIndex
from quarry.integrations.passages import describe, passage_id

__all__ = ["QuarryDocumentStore"]


class QuarryDocumentStore:
    """A document store whose texts are encoded by the encoder that comes with Quarry, or one of embeddings.

    Without `embedding_dim`, embeddings of documents are neither needed nor stored, and queries are texts. With it,
    the embeddings of documents are stored, and retrievers that compare embeddings need that of the query. Blobs
    and sparse embeddings are not stored. Dates in ISO format are compared as texts, so all values of a field
    should have the same precision and time zone.

    Args:
        path: folder of the index; an empty one is created if there is none.
        wait_s: seconds that a change waits for another process that is writing.
        embedding_dim: length of the embeddings of an index without an encoder; None: texts are encoded.
        metric: with `embedding_dim`, how embeddings are compared: "cosine", "ip" or "l2".
        return_embedding: with `embedding_dim`, whether documents are returned with their embeddings, in the
            precision of the index; see `quarry.engine.Engine.get`.

    Raises:
        EncoderMismatch: the vectors of the index are of another encoder.
        InvalidSetting: the index has embeddings of another length, or another metric.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        wait_s: float = 30,
        *,
        embedding_dim: int | None = None,
        metric: str = "cosine",
        return_embedding: bool = False,
    ) -> None:
        self._path = os.fspath(checked_path(path, "path"))
        self._wait_s = wait_s
        self._embedding_dim = embedding_dim
        self._metric = metric
        self._returns_embedding = return_embedding and embedding_dim is not None
        self._index = OpenIndex(path, wait_s=wait_s, dim=embedding_dim, metric=metric)

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline stores of this component."""
        return default_to_dict(
            self,
            path=self._path,
            wait_s=self._wait_s,
            embedding_dim=self._embedding_dim,
            metric=self._metric,
            return_embedding=self._returns_embedding,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Open the store that `to_dict` described."""
        return default_from_dict(cls, data)

    def search(
        self,
        query: str | None,
        k: int,
        filters: Filters | None = None,
        options: Mapping[str, Any] | None = None,
        query_embedding: list[float] | None = None,
    ) -> list[Document]:
        """Return the best passages with their scores; see `quarry.engine.Engine.search`.

        They have the fields of docs/integrations.md in their metadata; fields of the document with the same
        names keep their values. A passage of a longer document has an id of its own, such as "book#12".

        Args:
            query: the query; None: only its embedding is used.
            k: number of passages.
            filters: filters of Haystack; None: all documents.
            options: further keywords of `quarry.engine.Engine.search`, such as `unit="document"`.
            query_embedding: embedding of the query; None: that of the encoder.

        Raises:
            FilterError: the filters are malformed, or compare values of different types.
            InvalidQuery: there is neither a text nor an embedding, or no embedding that the mode needs.
            InvalidSetting: an option is unknown, has a wrong value, or is an argument of this method.
        """
        text = None if query is None else checked_query(query)
        own = {"queries": text, "vector": query_embedding, "k": k, "filter": translate_filters(filters)}
        chosen = search_options(options, **own)
        if self._embedding_dim is not None and query_embedding is None and chosen.get("mode") != "lexical":
            raise InvalidQuery(
                "the store has embeddings and no encoder, and the query has no embedding",
                expected=f"query_embedding, {self._embedding_dim} numbers",
            )
        index = self._index.searcher
        with filter_errors():
            hits = index.search(**chosen)
        return self._from_stored(index, hits)

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self._index.reader())

    def count_documents_by_filter(self, filters: Filters) -> int:
        """Return the number of documents that pass filters."""
        with filter_errors():
            return self._index.reader().count(translate_filters(filters) or {})

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that pass filters.

        Raises:
            FilterError: the filters are malformed, or compare values of different types.
        """
        index = self._index.reader()
        with filter_errors():
            return self._from_stored(index, list(index.documents(filter=translate_filters(filters))))

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Add documents in one commit, and return how many were written.

        Args:
            documents: with texts, or with `embedding_dim` with embeddings.
            policy: about documents whose ids the index has already, or its value as a text; NONE: fail.

        Raises:
            ValueError: these are not documents, one has no text and texts are encoded, or there is no such policy.
            DuplicateDocumentError: a document has the id of another one, and the policy is to fail.
            InvalidDocument: the text, metadata or embedding of a document cannot be indexed, or an embedding is
                missing in a store of embeddings. Nothing is written after an error.
        """
        if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("expected a list of Documents")
        policy = DuplicatePolicy(policy)  # a text such as "overwrite" is equal to none of them
        for each in documents:
            self._check(each)

        def write(index: Engine) -> int:
            taken: dict[str, Document] = {}
            for each in documents:
                is_known = each.id in taken or each.id in index
                if is_known and policy in (DuplicatePolicy.FAIL, DuplicatePolicy.NONE):
                    raise DuplicateDocumentError(f"there is a document with the id {each.id!r} already")
                if not is_known or policy == DuplicatePolicy.OVERWRITE:
                    taken[each.id] = each
            return index.add([self._to_stored(each) for each in taken.values()])

        return self._index.write(write)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents in one commit; ids that no document has are ignored."""
        self._index.write(lambda index: index.delete(document_ids))

    def delete_all_documents(self) -> None:
        """Delete all documents in one commit."""
        self._index.write(lambda index: index.delete(index.ids()))

    def delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that pass filters in one commit, and return how many there were.

        Raises:
            FilterError: there are no filters; `delete_all_documents` deletes all. Or they are malformed.
        """
        with filter_errors():
            condition = require_filters(filters)
            return self._index.write(lambda index: index.delete(filter=condition))

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Change metadata of the documents that pass filters in one commit, and return how many there were.

        Args:
            filters: filters of Haystack.
            meta: fields and their new values, None: the field is removed; other fields stay.

        Raises:
            FilterError: there are no filters, or they are malformed.
        """
        with filter_errors():
            condition = require_filters(filters)
            return self._index.write(lambda index: index.update_metadata(filter=condition, changes=meta))

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the type of each field of the metadata that has a value: keyword, long, float or boolean.

        Nested fields are named by their parts, separated by dots, as in filters.
        """
        fields: dict[str, dict[str, str]] = {}
        for document in self._index.reader():
            for name, value in _leaves("", document.metadata):
                if value is not None:
                    fields.setdefault(name, {"type": _type_name(value)})
        return fields

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the least and the largest value of a field; both are None if no document has it.

        Args:
            metadata_field: name of the field; parts of a nested one are separated by dots.

        Raises:
            DocumentStoreError: documents have values at the field that cannot be compared, such as numbers and
                texts.
            FilterError: the field is not a text.
        """
        values = self._values(metadata_field)
        types = {_type_name(each) for each in values}
        if len(types - {"long", "float"}) + (not types.isdisjoint({"long", "float"})) > 1:
            names = ", ".join(sorted(types))
            raise DocumentStoreError(f"the values of {metadata_field!r} cannot be compared; their types: {names}")
        return {"min": min(values, default=None), "max": max(values, default=None)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int | None = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """Return some of the values of a field, the most frequent ones first, and the number of all.

        Args:
            metadata_field: name of the field.
            search_term: only values that contain it, in upper or lower case; None: all.
            from_: number of values to leave out at the beginning.
            size: number of values; None: all.
            filters: only values of documents that pass them.

        Raises:
            InvalidSetting: `search_term` is not a text, or a number is below 0.
            FilterError: the field is not a text, or the filters are malformed.
        """
        if search_term is not None and not isinstance(search_term, str):
            raise InvalidSetting(
                "search_term is not a text", expected="a str", actual=shown(search_term), setting="search_term"
            )
        checked_integer(from_, "from_", 0, sys.maxsize)
        if size is not None:
            checked_integer(size, "size", 0, sys.maxsize)
        values = self._values(metadata_field, filters)
        if search_term is not None:
            values = [value for value in values if search_term.lower() in str(value).lower()]
        return values[from_ : None if size is None else from_ + size], len(values)

    def count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """Return how many values each of the fields has among the documents that pass filters."""
        names = checked_list(metadata_fields, "metadata_fields")
        return {metadata_path(name): len(self._values(name, filters)) for name in names}

    count_documents_async = on_thread(count_documents)
    count_documents_by_filter_async = on_thread(count_documents_by_filter)
    filter_documents_async = on_thread(filter_documents)
    write_documents_async = on_thread(write_documents)
    delete_documents_async = on_thread(delete_documents)
    delete_all_documents_async = on_thread(delete_all_documents)
    delete_by_filter_async = on_thread(delete_by_filter)
    update_by_filter_async = on_thread(update_by_filter)
    get_metadata_fields_info_async = on_thread(get_metadata_fields_info)
    get_metadata_field_min_max_async = on_thread(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = on_thread(get_metadata_field_unique_values)
    count_unique_metadata_by_filter_async = on_thread(count_unique_metadata_by_filter)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _values(self, field: str, filters: Filters | None = None) -> list[Any]:
        """Return the values of a field, the most frequent ones first; 1, 1.0 and True are different values."""
        counts: Counter[tuple[type, Any]] = Counter()
        path = metadata_path(field)
        for document in self.filter_documents(filters):
            counts.update((type(value), value) for name, value in _leaves("", document.meta) if name == path)
        return [value for (kind, value), _ in counts.most_common() if kind is not type(None)]

    def _check(self, document: Document) -> None:
        """Raise unless a document has a text to be encoded, or an embedding of the right length."""
        if self._embedding_dim is None:
            if not document.content:
                raise ValueError(f"document {document.id!r} has no text")
        else:
            check_embedding(document.embedding, self._embedding_dim, f"document {document.id!r}")

    def _to_stored(self, document: Document) -> dict[str, object]:
        stored: dict[str, object] = {"id": document.id, "text": document.content or "", "metadata": document.meta}
        return stored if self._embedding_dim is None else {**stored, "vectors": document.embedding}

    def _from_stored(self, index: Engine, stored: Sequence[StoredDocument | Hit]) -> list[Document]:
        embeddings: dict[str, list[float]] = {}
        if self._returns_embedding:
            for document in index.get([each.id for each in stored], vectors=True):
                vectors = np.asarray(document.vectors, np.float32)
                if len(vectors) == 1:  # documents of other programs may have several
                    embeddings[document.id] = vectors[0].tolist()
        return [
            Document(
                id=passage_id(each) if isinstance(each, Hit) else each.id,
                content=each.text or None,
                meta=describe(each) | dict(each.metadata) if isinstance(each, Hit) else dict(each.metadata),
                score=each.score if isinstance(each, Hit) else None,
                embedding=embeddings.get(each.id),
            )
            for each in stored
        ]


def _leaves(path: str, value: object) -> Iterator[tuple[str, Any]]:
    """Yield the values of metadata that are neither dictionaries nor lists, each with its path as in a filter."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(path, each)
    else:
        yield path, value


def _type_name(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long"
    return "float" if isinstance(value, float) else "keyword"
