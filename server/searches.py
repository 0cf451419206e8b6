"""What clients ask in a search, as options of the engine, and what they get; with the schemas of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from quarry.engine import Hit, Hits
from quarry.engine.options import SearchKeywords, SearchOptions
from quarry.engine.scoring.ranking import Exactness
from quarry.server.http.failures import RequestError
from quarry.server.http.json_schema import Schema, check
from quarry.server.http.type_schemas import schema_of, schemas_of_fields
from quarry.server.limits import Limits

__all__ = [
    "ID_SCHEMA",
    "ParsedSearch",
    "batch_schema",
    "hits_json",
    "hits_schema",
    "parse_batch",
    "parse_search",
    "search_schema",
]

_MAX_QUERY_CHARACTERS = 10_000
_MAX_CANDIDATES = 100_000  # bounds the time of a request
_DEFAULT_K = 10
_HITS_OF_A_BATCH = 10  # times `max_k`

ID_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": 4096}
"""The schema of the id of a document."""

_QUERY: Schema = {
    "type": "string",
    "maxLength": _MAX_QUERY_CHARACTERS,
    "description": "what is searched for; empty: all documents that pass `filter`, in the order of `sort`",
    "examples": ["why does the sea level change?"],
}
_LIKE: Schema = {
    **ID_SCHEMA,
    "description": "instead of a query the id of a document, to find others like it; not with rerank",
}
_TEXTS: Schema = {
    "type": "boolean",
    "default": True,
    "description": "whether hits have texts: of the documents and of their passages",
}
_FIELDS = tuple(schemas_of_fields(Hit))
_HIT_FIELDS: Schema = {
    "type": "array",
    "items": {"type": "string", "enum": _FIELDS},
    "description": "what hits have, instead of everything",
}
_OF_TEXTS = frozenset({"text", "passages", "matches", "before", "after"})


@dataclass(frozen=True)
class ParsedSearch:
    """A search.

    Attributes:
        queries: the texts; None: a document is the query, the option `like`.
        k: number of hits of each.
        fields: the names of what hits have, which alone is read and computed.
        options: the other options of `Engine.search`.
    """

    queries: Sequence[str] | None
    k: int
    fields: Sequence[str]
    options: SearchKeywords


@cache
def search_schema(limits: Limits) -> Schema:
    """Return the schema of a search with one query: a text, or a document of the index."""
    one = [{"required": [name]} for name in ("query", "like")]
    return {**_request_schema({"query": _QUERY, "like": _LIKE}, limits), "oneOf": one}


@cache
def batch_schema(limits: Limits) -> Schema:
    """Return the schema of a search with several queries."""
    queries = {"type": "array", "items": {**_QUERY, "minLength": 1}, "minItems": 1, "maxItems": limits.max_queries}
    return {**_request_schema({"queries": queries}, limits), "required": ["queries"]}


def parse_search(body: object, limits: Limits) -> ParsedSearch:
    """Check a search with one query.

    Raises:
        RequestError: 422, it is not valid.
    """
    check(body, search_schema(limits))
    given = dict(cast("Mapping[str, Any]", body))
    queries = [given.pop("query")] if "query" in given else None
    return _parsed_search(queries, given, limits)


def parse_batch(body: object, limits: Limits) -> ParsedSearch:
    """Check a search with several queries.

    Raises:
        RequestError: 422, it is not valid.
    """
    check(body, batch_schema(limits))
    given = dict(cast("Mapping[str, Any]", body))
    queries = given.pop("queries")
    return _parsed_search(queries, given, limits)


def hits_json(hits: Hits, fields: Sequence[str]) -> dict[str, object]:
    """Return the hits of one query, each with the fields of these names."""
    return {
        "hits": [
            hit.to_dict() if len(fields) == len(_FIELDS) else {name: hit[name] for name in fields} for hit in hits
        ],
        "answerable": hits.answerable,
        "exactness": hits.exactness.value,
        "total": hits.total,
        "coverage": None if hits.coverage is None else hits.coverage.to_dict(),
    }


def hits_schema() -> Schema:
    """Return the schema of the hits of one query."""
    hit = schema_of(Hit) | {"required": [], "description": "with `fields` or `texts` false, a part of these"}
    return {
        "type": "object",
        "required": ["hits", "answerable", "exactness", "total", "coverage"],
        "properties": {
            "hits": {"type": "array", "items": hit},
            "answerable": {
                "type": ["boolean", "null"],
                "description": "whether a hit probably answers the query; null if unknown",
            },
            "exactness": schema_of(Exactness)
            | {"description": "what is known about the documents that are not among the hits"},
            "total": {
                "type": ["integer", "null"],
                "description": "with `total` the number of documents, or passages, that match",
            },
            "coverage": {
                "type": ["object", "null"],
                "description": "of a sharded index: which shards answered",
            },
        },
    }


def _parsed_search(queries: list[str] | None, given: dict[str, Any], limits: Limits) -> ParsedSearch:
    n_hits = len(queries or [""]) * given.get("k", _DEFAULT_K) * given.get("group_size", 1)
    max_hits = limits.max_k * _HITS_OF_A_BATCH
    if n_hits > max_hits:
        message, expected = "the request asks for too many hits", f"at most {max_hits} hits in all"
        raise RequestError(422, "InvalidRequest", message, field="k", expected=expected, found=n_hits)
    k, has_texts = given.pop("k", _DEFAULT_K), given.pop("texts", True)
    fields = [name for name in given.pop("fields", _FIELDS) if has_texts or name not in _OF_TEXTS]
    given.setdefault("timeout", limits.timeout_s)
    return ParsedSearch(queries, k, fields, cast("SearchKeywords", given))


def _request_schema(queries: Mapping[str, Schema], limits: Limits) -> Schema:
    """Return the schema of a search: its queries, and the options of the engine, within limits."""
    options = schemas_of_fields(SearchOptions)
    del options["like"]
    bounds = {
        "k": (1, limits.max_k),
        "offset": (0, limits.max_k * _HITS_OF_A_BATCH),
        "candidates": (1, _MAX_CANDIDATES),
        "nprobe": (1, _MAX_CANDIDATES),
        "dense_weight": (0, 1),
        "rerank": (1, limits.max_k),
        "group_size": (1, limits.max_k),
        "min_relevance": (0, 1),
        "timeout": (0, limits.timeout_s),
    }
    for name, (low, high) in bounds.items():
        options[name] = {**options[name], "minimum": low, "maximum": high}
    options["timeout"] = {**options["timeout"], "type": "number", "default": limits.timeout_s}
    properties = {**queries, **options, "texts": _TEXTS, "fields": _HIT_FIELDS}
    return {"type": "object", "additionalProperties": False, "properties": properties}
