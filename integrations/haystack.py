"""Haystack: a document store on an index, and a retriever."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError

from quarry.engine import Document as StoredDocument
from quarry.engine import Engine, Hit
from quarry.formats.errors import InvalidFilter
from quarry.integrations.open_index import OpenIndex

__all__ = ["QuarryDocumentStore", "QuarryRetriever"]

Filters = Mapping[str, Any]

_COMPARISONS = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_NOTHING: dict[str, object] = {"id": {"$exists": False}}  # no document passes


class QuarryDocumentStore:
    """A document store whose texts are encoded by the encoder that comes with Quarry.

    Embeddings of documents are neither needed nor stored: a `QuarryRetriever` takes the query as a text. Dates in
    ISO format are compared as texts, so all values of a field should have the same precision and time zone.

    Args:
        path: folder of the index; an empty one is created if there is none.
        wait_s: seconds that a change waits for another process that is writing.
    """

    def __init__(self, path: str | os.PathLike[str], wait_s: float = 30) -> None:
        self._path = os.fspath(path)
        self._wait_s = wait_s
        self._index = OpenIndex(path, wait_s=wait_s)

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline stores of this component."""
        return default_to_dict(self, path=self._path, wait_s=self._wait_s)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Open the store that `to_dict` described."""
        return default_from_dict(cls, data)

    def search(
        self, query: str, k: int, filters: Filters | None = None, options: Mapping[str, Any] | None = None
    ) -> list[Document]:
        """Return the best documents with their scores; see `quarry.engine.Engine.search`.

        Args:
            query: the query.
            k: number of documents.
            filters: filters of Haystack; None: all documents.
            options: further keywords of `quarry.engine.Engine.search`.
        """
        with _filter_errors():
            hits = self._index.reader().search(query, k, filter=_translated(filters), **(options or {}))
        return [_from_hit(hit) for hit in hits]

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self._index.reader())

    def count_documents_by_filter(self, filters: Filters) -> int:
        """Return the number of documents that pass filters."""
        with _filter_errors():
            return self._index.reader().count(_translated(filters) or {})

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that pass filters.

        Raises:
            FilterError: the filters are malformed, or compare values of different types.
        """
        with _filter_errors():
            return [_from_stored(each) for each in self._index.reader().documents(filter=_translated(filters))]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Add documents in one commit, and return how many were written.

        Args:
            documents: with texts.
            policy: about documents whose ids the index has already; NONE: fail.

        Raises:
            ValueError: these are not documents, or one has no text.
            DuplicateDocumentError: a document has the id of another one, and the policy is to fail.
            InvalidDocument: the text or metadata of a document cannot be indexed. Nothing is written then.
        """
        if not isinstance(documents, list) or not all(isinstance(each, Document) for each in documents):
            raise ValueError("expected a list of Documents")
        for each in documents:
            if not each.content:
                raise ValueError(f"document {each.id!r} has no text")

        def write(index: Engine) -> int:
            taken: dict[str, Document] = {}
            for each in documents:
                is_known = each.id in taken or each.id in index
                if is_known and policy in (DuplicatePolicy.FAIL, DuplicatePolicy.NONE):
                    raise DuplicateDocumentError(f"there is a document with the id {each.id!r} already")
                if not is_known or policy == DuplicatePolicy.OVERWRITE:
                    taken[each.id] = each
            return index.add([_to_stored(each) for each in taken.values()])

        return self._index.write(write)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents in one commit; ids that no document has are ignored."""
        self._index.write(lambda index: index.delete(document_ids))

    def delete_all_documents(self) -> None:
        """Delete all documents in one commit."""
        self._index.write(lambda index: index.delete(filter={}))

    def delete_by_filter(self, filters: Filters) -> int:
        """Delete the documents that pass filters in one commit, and return how many there were."""
        with _filter_errors():
            return self._index.write(lambda index: index.delete(filter=_translated(filters) or {}))

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Change metadata of the documents that pass filters in one commit, and return how many there were.

        Args:
            filters: filters of Haystack.
            meta: fields and their new values; other fields stay.
        """
        with _filter_errors():
            return self._index.write(
                lambda index: index.update_metadata(filter=_translated(filters) or {}, changes=meta)
            )

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the type of each field of the metadata: keyword, long, float or boolean."""
        found: dict[str, dict[str, str]] = {}
        for document in self._index.reader():
            for name, value in document.metadata.items():
                found.setdefault(name, {"type": _type_name(value)})
        return found

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the least and the largest value of a field; both are None if no document has it."""
        values = self._values(metadata_field)
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
        """
        values = self._values(metadata_field, filters)
        if search_term is not None:
            values = [value for value in values if search_term.lower() in str(value).lower()]
        return values[from_ : None if size is None else from_ + size], len(values)

    def count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """Return how many values each of the fields has among the documents that pass filters."""
        return {name.removeprefix("meta."): len(self._values(name, filters)) for name in metadata_fields}

    async def count_documents_async(self) -> int:
        """Do the same as `count_documents`; so do the other methods of this kind."""
        return await asyncio.to_thread(self.count_documents)

    async def count_documents_by_filter_async(self, filters: Filters) -> int:
        """See `count_documents_by_filter`."""
        return await asyncio.to_thread(self.count_documents_by_filter, filters)

    async def filter_documents_async(self, filters: Filters | None = None) -> list[Document]:
        """See `filter_documents`."""
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """See `write_documents`."""
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """See `delete_documents`."""
        await asyncio.to_thread(self.delete_documents, document_ids)

    async def delete_all_documents_async(self) -> None:
        """See `delete_all_documents`."""
        await asyncio.to_thread(self.delete_all_documents)

    async def delete_by_filter_async(self, filters: Filters) -> int:
        """See `delete_by_filter`."""
        return await asyncio.to_thread(self.delete_by_filter, filters)

    async def update_by_filter_async(self, filters: Filters, meta: dict[str, Any]) -> int:
        """See `update_by_filter`."""
        return await asyncio.to_thread(self.update_by_filter, filters, meta)

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """See `get_metadata_fields_info`."""
        return await asyncio.to_thread(self.get_metadata_fields_info)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """See `get_metadata_field_min_max`."""
        return await asyncio.to_thread(self.get_metadata_field_min_max, metadata_field)

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int | None = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """See `get_metadata_field_unique_values`."""
        return await asyncio.to_thread(
            self.get_metadata_field_unique_values, metadata_field, search_term, from_, size, filters
        )

    async def count_unique_metadata_by_filter_async(
        self, filters: Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """See `count_unique_metadata_by_filter`."""
        return await asyncio.to_thread(self.count_unique_metadata_by_filter, filters, metadata_fields)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _values(self, field: str, filters: Filters | None = None) -> list[Any]:
        """Return the values of a field, the most frequent ones first; 1, 1.0 and True are different values."""
        counts: Counter[tuple[type, Any]] = Counter()
        for document in self.filter_documents(filters):
            value = document.meta.get(field.removeprefix("meta."))
            counts.update((type(each), each) for each in (value if isinstance(value, list) else [value]))
        return [value for (kind, value), _ in counts.most_common() if kind is not type(None)]


@component
class QuarryRetriever:
    """Finds documents of a `QuarryDocumentStore` for a query.

    Args:
        document_store: the store.
        top_k: number of documents.
        mode: "hybrid", "dense" (embeddings) or "lexical" (BM25).
        filters: filters of Haystack that all documents must pass; those of `run` take their place.
        options: further keywords of `quarry.engine.Engine.search`, such as `min_relevance`.
    """

    def __init__(
        self,
        document_store: QuarryDocumentStore,
        top_k: int = 10,
        mode: str = "hybrid",
        filters: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._store = document_store
        self._top_k = top_k
        self._mode = mode
        self._filters = filters
        self._options = options or {}

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline stores of this component."""
        return default_to_dict(
            self,
            document_store=self._store.to_dict(),
            top_k=self._top_k,
            mode=self._mode,
            filters=self._filters,
            options=self._options,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make the retriever that `to_dict` described, and open its store."""
        given = data["init_parameters"]
        given["document_store"] = QuarryDocumentStore.from_dict(given["document_store"])
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents with their scores, best first.

        Args:
            query: the query.
            filters: filters of Haystack; None: those of the retriever.
            top_k: number of documents; None: that of the retriever.
        """
        found = self._store.search(
            query,
            self._top_k if top_k is None else top_k,
            self._filters if filters is None else filters,
            {"mode": self._mode, **self._options},
        )
        return {"documents": found}


@contextmanager
def _filter_errors() -> Iterator[None]:
    """Raise errors about filters as those of Haystack."""
    try:
        yield
    except InvalidFilter as error:
        raise FilterError(str(error)) from error


def _translated(filters: Filters | None) -> dict[str, object] | None:
    """Return filters of Haystack in the form that `quarry.engine.filtering.filter` describes; None: no filters.

    Raises:
        FilterError: they are malformed.
    """
    return _condition(filters) if filters else None


def _condition(given: object) -> dict[str, object]:
    if not isinstance(given, Mapping):
        raise FilterError(f"a filter is a dictionary, not {given!r}")
    if "field" in given:
        return _comparison(given)
    for key in ("operator", "conditions"):
        if key not in given:
            raise FilterError(f"{key!r} is missing in {dict(given)!r}")
    operator, conditions = given["operator"], given["conditions"]
    if not isinstance(conditions, Sequence) or not conditions:
        raise FilterError(f"'conditions' is not a list of filters in {dict(given)!r}")
    parts = [_condition(each) for each in conditions]
    if operator == "AND":
        return {"$and": parts}
    if operator == "OR":
        return {"$or": parts}
    if operator == "NOT":
        return {"$not": {"$and": parts}}
    raise FilterError(f"unknown operator {operator!r}; expected AND, OR or NOT")


def _comparison(given: Mapping[str, Any]) -> dict[str, object]:
    for key in ("operator", "value"):
        if key not in given:
            raise FilterError(f"{key!r} is missing in {dict(given)!r}")
    field, operator, value = str(given["field"]).removeprefix("meta."), given["operator"], given["value"]
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"the operator {operator!r} needs a list, not {value!r}")
        return {field: {"$in" if operator == "in" else "$nin": value}}
    if operator == "==":
        return {"$or": [{field: {"$exists": False}}, {field: None}]} if value is None else {field: value}
    if operator == "!=":
        return {field: {"$exists": True, "$ne": None}} if value is None else {field: {"$ne": value}}
    if operator not in _COMPARISONS:
        raise FilterError(f"unknown operator {operator!r}; expected ==, !=, >, >=, <, <=, in or not in")
    if value is None:
        return _NOTHING
    if (isinstance(value, str) and not _is_date(value)) or isinstance(value, list | dict):
        raise FilterError(f"the operator {operator!r} needs a number or a date in ISO format, not {value!r}")
    return {field: {_COMPARISONS[operator]: value}}


def _is_date(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _type_name(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long"
    return "float" if isinstance(value, float) else "keyword"


def _to_stored(document: Document) -> StoredDocument:
    return StoredDocument(document.id, document.content or "", metadata=dict(document.meta))


def _from_stored(document: StoredDocument) -> Document:
    return Document(id=document.id, content=document.text, meta=dict(document.metadata))


def _from_hit(hit: Hit) -> Document:
    return Document(id=hit.id, content=hit.text, meta=dict(hit.metadata), score=hit.score)
