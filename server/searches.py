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

_TEXT: Schema = {"type": "string", "maxLength": _MAX_QUERY_CHARACTERS}
_VECTOR: Schema = {"type": "array", "items": {"type": "number"}}
_SEARCHED: Mapping[str, Schema] = {
    "query": {
        **_TEXT,
        "type": ["string", "null"],
        "description": "what is searched for; empty or left out: all documents that pass `filter`, in the order"
        " of `sort`, `boost` or `group_by`, of which one is given",
        "examples": ["why does the sea level change?"],
    },
    "vector": {**_VECTOR, "description": "the vector of the query, which is then not encoded; or a vector alone"},
    "like": {**ID_SCHEMA, "description": "instead of both the id of a document, to find others like it"},
}
_SEARCHED_TOGETHER: Mapping[str, Schema] = {
    "queries": {"type": "array", "items": {**_TEXT, "minLength": 1}, "minItems": 1},
    "vectors": {"type": "array", "items": _VECTOR, "minItems": 1, "description": "of the queries, or instead"},
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
        queries: one text, or several; None: there is a vector or the option `like` alone, or neither.
        vector: of the text, or of the texts; None: there is none.
        searched: the name of what the request searches for, for errors.
        k: number of hits of each.
        fields: the names of what hits have, which alone is read and computed.
        options: the other options of `Engine.search`.
    """

    queries: str | Sequence[str] | None
    vector: Sequence[object] | None
    searched: str
    k: int
    fields: Sequence[str]
    options: SearchKeywords


@cache
def search_schema(limits: Limits) -> Schema:
    """Return the schema of a search with one query: a text, a vector, or a document of the index."""
    return _request_schema(_SEARCHED, limits)


@cache
def batch_schema(limits: Limits) -> Schema:
    """Return the schema of a search with several queries."""
    several = {name: {**each, "maxItems": limits.max_queries} for name, each in _SEARCHED_TOGETHER.items()}
    return _request_schema(several, limits)


def parse_search(body: object, limits: Limits) -> ParsedSearch:
    """Check a search with one query.

    Raises:
        RequestError: 422, it is not valid.
    """
    return _parsed_search(body, search_schema(limits), "query", "vector", limits)


def parse_batch(body: object, limits: Limits) -> ParsedSearch:
    """Check a search with several queries.

    Raises:
        RequestError: 422, it is not valid.
    """
    return _parsed_search(body, batch_schema(limits), "queries", "vectors", limits)


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


def _parsed_search(body: object, schema: Schema, text: str, vector: str, limits: Limits) -> ParsedSearch:
    """Check a search, whose texts and vectors have these names."""
    check(body, schema)
    given = dict(cast("Mapping[str, Any]", body))
    searched = next((name for name in ("like", vector) if given.get(name) is not None), text)
    queries, vectors = given.pop(text, None), given.pop(vector, None)
    n_queries = max(1, len(queries or ()), len(vectors or ())) if text == "queries" else 1
    n_hits = n_queries * given.get("k", _DEFAULT_K) * given.get("group_size", 1)
    max_hits = limits.max_k * _HITS_OF_A_BATCH
    if n_hits > max_hits:
        message, expected = "the request asks for too many hits", f"at most {max_hits} hits in all"
        raise RequestError(422, "InvalidRequest", message, field="k", expected=expected, found=n_hits)
    k, has_texts = given.pop("k", _DEFAULT_K), given.pop("texts", True)
    fields = [name for name in given.pop("fields", _FIELDS) if has_texts or name not in _OF_TEXTS]
    given.setdefault("timeout", limits.timeout_s)
    return ParsedSearch(queries, vectors, searched, k, fields, cast("SearchKeywords", given))


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
