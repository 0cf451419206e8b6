"""The operations on indexes: searching, and reading, adding and deleting documents."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from quarry.engine import Facets, Hits
from quarry.engine.options import SearchOptions
from quarry.formats.errors import InvalidDocument, InvalidFilter, InvalidQuery, InvalidSetting, QuarryError
from quarry.server.http.access import Need
from quarry.server.http.bodies import JSON_TYPES, NDJSON_TYPES, read_body, received_file
from quarry.server.http.failures import ERROR_SCHEMA, RequestError, request_error
from quarry.server.http.json_schema import Schema, check, parse_json, parsed
from quarry.server.http.metrics import Metrics
from quarry.server.http.operations import Operation, encode_json, json_bytes_response, json_response
from quarry.server.http.type_schemas import schema_of, schemas_of_fields
from quarry.server.limits import Limits
from quarry.server.searches import (
    ID_SCHEMA,
    ParsedSearch,
    batch_schema,
    hits_json,
    hits_schema,
    parse_batch,
    parse_search,
    search_schema,
)
from quarry.server.served_index import ServedIndex, Written
from quarry.server.workers import Workers, finished

__all__ = ["IndexOperations"]

_log = logging.getLogger(__name__)

JSON, NDJSON = JSON_TYPES[0], NDJSON_TYPES[0]
_INDEX = "/v1/indexes/{index}"
_MAX_IDS = 1000  # in one address, which clients and proxies limit to some kilobytes
_IDS: Schema = {"type": "array", "items": ID_SCHEMA, "minItems": 1, "maxItems": _MAX_IDS}
_COUNT: Schema = {"type": "integer", "minimum": 0}


class IndexOperations:
    """Answers requests that concern one index.

    Args:
        indexes: the indexes by name.
        workers: threads for searching and reading.
        limits: what requests may ask for.
        metrics: counts documents that are added and deleted.
    """

    def __init__(
        self, indexes: Mapping[str, ServedIndex], workers: Workers, limits: Limits, metrics: Metrics
    ) -> None:
        self._indexes = indexes
        self._workers = workers
        self._limits = limits
        self._metrics = metrics
        self._listing = listing_schema(limits)

    def operations(self) -> list[Operation]:
        """Return the descriptions of all operations."""
        hits, search, batch = hits_schema(), search_schema(self._limits), batch_schema(self._limits)
        several = _object(documents=_array(_DOCUMENT), missing=_array(ID_SCHEMA))
        listed = _object(documents=_array(_DOCUMENT), n_documents=_COUNT)
        results = _object(results=_array(hits))
        facets = _object(facets={"type": "object", "additionalProperties": schema_of(Facets)})
        added = _object(n_added=_COUNT, generation=_COUNT)
        adding = "Add documents in one commit; the last of equal ids stays"
        deleting = "Delete documents in one commit, by ids, of which unknown ones are ignored, or by a filter"
        changing = "Change the metadata of documents in one commit, without encoding them again"
        counting = "Count the documents that have each value of some fields"
        listing = "List the documents that pass a filter"
        getting, searching = "Get documents by their ids", "Search with several queries"
        document = "/documents/{id:document_id}"
        documents = {NDJSON: _DOCUMENT_TO_ADD, JSON: _array(_DOCUMENT_TO_ADD)}
        return [
            Operation("GET", "/v1/indexes", "read", self._list_indexes, "List the indexes", (JSON, _INDEXES)),
            _of("GET", "", "read", self._describe, "Show the statistics of an index", _DESCRIBED),
            _of("POST", "/search", "read", self._search, "Search with one query", hits, {JSON: search}),
            _of("POST", "/search/batch", "read", self._search_batch, searching, results, {JSON: batch}),
            _of("GET", "/documents", "read", self._get_documents, getting, several, query={"id": _IDS}),
            _of("POST", "/documents", "write", self._add, adding, added, documents),
            _of("PATCH", "/documents", "write", self._update, changing, _UPDATED, {JSON: _UPDATE}),
            _of("GET", document, "read", self._get_document, "Get a document", _DOCUMENT),
            _of("DELETE", document, "write", self._delete_document, "Delete a document", _DELETED),
            _of("POST", "/list", "read", self._list_documents, listing, listed, {JSON: self._listing}),
            _of("POST", "/facets", "read", self._count_facets, counting, facets, {JSON: _FACETS}),
            _of("POST", "/delete", "write", self._delete, deleting, _DELETED, {JSON: _DELETION}),
        ]

    async def _list_indexes(self, _: Request) -> Response:
        def list_indexes() -> dict[str, object]:
            listed: list[object] = []
            failures: dict[str, QuarryError] = {}
            for name, index in self._indexes.items():
                try:
                    listed.append({"name": name, "documents": len(index.newest())})
                except QuarryError as error:  # the others can be searched nevertheless
                    failures[name] = error
                    _log.warning("%s cannot be read: %s", name, error)
            if failures and not listed:
                raise next(iter(failures.values()))
            errors = [{"name": name, **request_error(error).to_dict()} for name, error in failures.items()]
            return {"indexes": listed} | ({"errors": errors} if errors else {})

        return await self._respond(list_indexes)

    async def _describe(self, request: Request) -> Response:
        index = self._index(request)
        return await self._respond(lambda: {"name": index.name, "statistics": index.newest().stats()})

    async def _search(self, request: Request) -> Response:
        index, body = self._index(request), await self._read(request)
        return await self._respond(lambda: _found(index, parse_search(parse_json(body), self._limits))[0])

    async def _search_batch(self, request: Request) -> Response:
        index, body = self._index(request), await self._read(request)
        return await self._respond(lambda: {"results": _found(index, parse_batch(parse_json(body), self._limits))})

    async def _get_documents(self, request: Request) -> Response:
        index, ids = self._index(request), request.query_params.getlist("id")
        check(ids, _IDS, "id")

        def get_documents() -> object:
            documents = index.newest().get(ids)
            known = {document.id for document in documents}
            missing = [doc_id for doc_id in dict.fromkeys(ids) if doc_id not in known]
            return {"documents": [each.to_dict() for each in documents], "missing": missing}

        return await self._respond(get_documents)

    async def _get_document(self, request: Request) -> Response:
        index, doc_id = self._index(request), request.path_params["id"]

        def get_document() -> object:
            documents = index.newest().get([doc_id])
            if not documents:
                raise _no_document(doc_id)
            return documents[0].to_dict()

        return await self._respond(get_document)

    async def _list_documents(self, request: Request) -> Response:
        index, body = self._index(request), await self._read(request)

        def list_documents() -> object:
            wanted = parsed(body, self._listing)
            reader, condition = index.newest(), wanted["filter"]
            total = len(reader) if condition is None else reader.count(condition)
            return {"documents": [each.to_dict() for each in reader.documents(**wanted)], "n_documents": total}

        return await self._respond(list_documents)

    async def _count_facets(self, request: Request) -> Response:
        index, body = self._index(request), await self._read(request)

        def count_facets() -> object:
            wanted = parsed(body, _FACETS)
            reader, fields = index.newest(), wanted.pop("fields")
            return {"facets": {field: reader.facets(field, **wanted).to_dict() for field in fields}}

        return await self._respond(count_facets)

    async def _add(self, request: Request) -> Response:
        index = self._index(request)
        async with received_file(request, self._limits.max_upload_bytes, self._limits.timeout_s) as path:
            written = await finished(index.add(path))
        return self._written(index, "added", written)

    async def _delete(self, request: Request) -> Response:
        index, body = self._index(request), await self._read(request)
        return self._written(index, "deleted", await finished(index.delete(**parsed(body, _DELETION))))

    async def _update(self, request: Request) -> Response:
        index, body = self._index(request), await self._read(request)
        wanted = parsed(body, _UPDATE)
        changes = wanted.pop("metadata", None)
        which = {"ids": wanted.pop("changes"), **wanted} if "changes" in wanted else wanted
        try:
            written = await finished(index.update(changes, **which))
        except (InvalidDocument, InvalidSetting) as error:
            refused, name = request_error(error), "metadata"
            path = error.field if isinstance(error, InvalidDocument) else error.setting
            if error.document is not None:
                name = f"changes.{error.document[:60]}"
            refused.field = name + (path or "").removeprefix("changes").removeprefix("metadata")
            raise refused from error
        return self._written(index, "updated", written)

    async def _delete_document(self, request: Request) -> Response:
        index, doc_id = self._index(request), request.path_params["id"]
        written = await finished(index.delete(ids=[doc_id]))
        if not written.count:
            raise _no_document(doc_id)
        return self._written(index, "deleted", written)

    def _written(self, index: ServedIndex, change: str, written: Written) -> Response:
        self._metrics.count_documents(index.name, change, written.count)
        return json_response({f"n_{change}": written.count, "generation": written.generation})

    def _index(self, request: Request) -> ServedIndex:
        name = request.path_params["index"]
        index = self._indexes.get(name)
        if index is None:
            raise RequestError(404, "UnknownIndex", "there is no such index", field="index", found=name[:60])
        return index

    async def _read(self, request: Request) -> bytes:
        return await read_body(request, self._limits.max_body_bytes, self._limits.timeout_s)

    async def _respond(self, make: Callable[[], object]) -> Response:
        """Answer with a value that is made, and encoded as JSON, by one of the threads."""
        encoded = await self._workers.run(lambda: encode_json(make()), self._limits.timeout_s)
        return json_bytes_response(encoded)


def _of(
    method: str,
    path: str,
    needs: Need,
    answer: Callable[[Request], Awaitable[Response]],
    summary: str,
    result: Schema,
    body: Mapping[str, Schema] | None = None,
    query: Mapping[str, Schema] | None = None,
) -> Operation:
    """Return the description of an operation on one index; the path is that below the index."""
    return Operation(method, _INDEX + path, needs, answer, summary, (JSON, result), body or {}, query or {})


def _found(index: ServedIndex, wanted: ParsedSearch) -> list[dict[str, object]]:
    try:
        answers = index.reader.search(wanted.queries, wanted.k, vector=wanted.vector, **wanted.options)
    except InvalidFilter:
        raise
    except InvalidQuery as error:
        refused = request_error(error)
        refused.field = wanted.searched
        raise refused from error
    return [hits_json(hits, wanted.fields) for hits in ([answers] if isinstance(answers, Hits) else answers)]


def _no_document(doc_id: str) -> RequestError:
    return RequestError(404, "UnknownDocument", "there is no such document", field="id", found=doc_id[:60])


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


_TEXT: Schema = {"type": "string"}
_DESCRIBED = _object(name=_TEXT, statistics={"type": "object"})
_DOCUMENT = _object(id=_TEXT, title=_TEXT, text=_TEXT, metadata={"type": "object"})
_DOCUMENT_TO_ADD: Schema = {
    "type": "object",
    "description": "one document; without an id it gets a random one",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {
        "id": ID_SCHEMA,
        "text": _TEXT,
        "title": {"type": ["string", "null"]},
        "metadata": {"type": ["object", "null"]},
        "vectors": {"type": "array", "description": "vectors of the document, which is then not encoded"},
        "spans": {"type": ["array", "null"], "description": "of each vector, first and last character"},
    },
}
_DELETION: Schema = {
    "type": "object",
    "additionalProperties": False,
    "oneOf": [{"required": ["ids"]}, {"required": ["filter"]}],
    "properties": {
        "ids": {"type": "array", "items": ID_SCHEMA, "minItems": 1, "maxItems": 100_000},
        "filter": {"type": "object", "description": "see search; not empty"},
    },
}
_CHANGES = "fields and their new values; null removes a field"
_UPDATE: Schema = {
    **_DELETION,
    "oneOf": [{"required": ["ids"]}, {"required": ["filter"]}, {"required": ["changes"]}],
    "dependentRequired": {"ids": ["metadata"], "filter": ["metadata"]},
    "properties": {
        **_DELETION["properties"],
        "metadata": {"type": "object", "description": _CHANGES},
        "changes": {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "description": "ids, and the metadata of each document as in `metadata`",
        },
    },
}
_FILTER: Schema = {"type": ["object", "null"], "default": None, "description": "see search"}
_FACETS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["fields"],
    "properties": {
        "fields": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 200},
            "minItems": 1,
            "maxItems": 20,
            "description": "paths of metadata, as in a filter",
        },
        "query": {
            "type": ["string", "null"],
            "maxLength": 10_000,
            "default": None,
            "description": "only documents with one of its words are counted",
        },
        **{name: schemas_of_fields(SearchOptions)[name] for name in ("operators", "prefix")},
        "filter": _FILTER,
        "limit": {
            "type": "integer",
            "minimum": 0,
            "maximum": 1000,
            "default": 20,
            "description": "number of values of each field, the most frequent ones",
        },
    },
}


def listing_schema(limits: Limits) -> Schema:
    """Return the schema of a request for a list of documents."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "filter": _FILTER,
            "offset": {"type": "integer", "minimum": 0, "maximum": 1 << 40, "default": 0},
            "limit": {"type": "integer", "minimum": 0, "maximum": limits.max_k, "default": 10},
            "sort": {**schemas_of_fields(SearchOptions)["sort"], "description": "fields that decide the order"},
        },
    }


_INDEXES = _object(indexes=_array(_object(name=_TEXT, documents=_COUNT)))
_INDEXES["properties"]["errors"] = {
    "type": "array",
    "description": "the indexes that cannot be read, if there are any",
    "items": _object(name=_TEXT, error=ERROR_SCHEMA["properties"]["error"]),
}
_UPDATED = _object(n_updated=_COUNT, generation=_COUNT)
_DELETED = _object(n_deleted=_COUNT, generation=_COUNT)
