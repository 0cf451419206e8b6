"""Requests for searches: their schemas, and the options of the engine that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from quarry.engine.options import FUSIONS, MODES, SearchKeywords
from quarry.server.http.failures import RequestError
from quarry.server.http.json_schema import Schema, check
from quarry.server.limits import Limits

__all__ = [
    "ID_SCHEMA",
    "SearchRequest",
    "batch_schema",
    "hits_schema",
    "parse_batch",
    "parse_search",
    "search_schema",
]

_MAX_QUERY_CHARACTERS = 10_000
_MAX_CANDIDATES = 100_000
_DEFAULT_K = 10
_HITS_OF_A_BATCH = 10  # times `max_k`

ID_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": 4096}
"""The schema of the id of a document."""


@dataclass(frozen=True)
class SearchRequest:
    """A search.

    Attributes:
        queries: the texts; None: a document is the query, the option `like`.
        k: number of hits of each.
        has_texts: whether hits have the whole texts of documents.
        options: the other options of `Engine.search`.
    """

    queries: Sequence[str] | None
    k: int
    has_texts: bool
    options: SearchKeywords


@cache
def search_schema(limits: Limits) -> Schema:
    """Return the schema of a search with one query: a text, or a document of the index."""
    one = [{"required": [name]} for name in ("query", "like")]
    return {**_request_schema({"query": _QUERY, "like": _LIKE}, limits), "oneOf": one}


@cache
def batch_schema(limits: Limits) -> Schema:
    """Return the schema of a search with several queries."""
    queries = {"type": "array", "items": _QUERY, "minItems": 1, "maxItems": limits.max_queries}
    return {**_request_schema({"queries": queries}, limits), "required": ["queries"]}


def parse_search(body: object, limits: Limits) -> SearchRequest:
    """Check a search with one query.

    Raises:
        RequestError: 422, it is not valid.
    """
    check(body, search_schema(limits))
    given = dict(cast("Mapping[str, Any]", body))
    queries = [given.pop("query")] if "query" in given else None
    return _search_request(queries, given, limits)


def parse_batch(body: object, limits: Limits) -> SearchRequest:
    """Check a search with several queries.

    Raises:
        RequestError: 422, it is not valid.
    """
    check(body, batch_schema(limits))
    given = dict(cast("Mapping[str, Any]", body))
    queries = given.pop("queries")
    n_hits, max_hits = len(queries) * given.get("k", _DEFAULT_K), limits.max_k * _HITS_OF_A_BATCH
    if n_hits > max_hits:
        raise RequestError(
            422,
            "the batch asks for too many hits",
            name="InvalidRequest",
            field="k",
            expected=f"at most {max_hits} hits in all",
            found=n_hits,
        )
    return _search_request(queries, given, limits)


def _search_request(queries: list[str] | None, given: dict[str, Any], limits: Limits) -> SearchRequest:
    k, has_texts = given.pop("k", _DEFAULT_K), given.pop("texts", True)
    given.setdefault("timeout", limits.timeout_s)
    return SearchRequest(queries, k, has_texts, cast("SearchKeywords", given))


_QUERY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": _MAX_QUERY_CHARACTERS,
    "description": "what is searched for",
    "examples": ["why does the sea level change?"],
}
_LIKE: Schema = {
    **ID_SCHEMA,
    "description": "instead of a query the id of a document, to find others like it; not with rerank",
}


def _request_schema(queries: Mapping[str, Schema], limits: Limits) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**queries, **_options_schema(limits)},
    }


def _options_schema(limits: Limits) -> Mapping[str, Schema]:
    return {
        "k": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.max_k,
            "default": _DEFAULT_K,
            "description": "number of hits",
        },
        "offset": {
            "type": "integer",
            "minimum": 0,
            "maximum": limits.max_k * _HITS_OF_A_BATCH,
            "default": 0,
            "description": "number of hits to leave out at the beginning",
        },
        "mode": {
            "type": "string",
            "enum": list(MODES),
            "default": "hybrid",
            "description": "vectors and words, vectors alone, or words alone",
        },
        "filter": {
            "type": ["object", "null"],
            "default": None,
            "description": "condition on metadata, id and title that documents must satisfy",
            "examples": [{"year": {"$gte": 2020}}],
        },
        "explain": {
            "type": "boolean",
            "default": False,
            "description": "whether hits have the passages and the terms that matched",
        },
        "texts": {
            "type": "boolean",
            "default": True,
            "description": "whether hits have the whole texts of the documents",
        },
        "fusion": {
            "type": "string",
            "enum": list(FUSIONS),
            "default": "linear",
            "description": "how dense and lexical scores are combined in mode hybrid",
        },
        "dense_weight": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": 1,
            "default": None,
            "description": "weight of the dense scores in the fusion linear; null: that of the index, or 0.5",
        },
        "candidates": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": _MAX_CANDIDATES,
            "default": None,
            "description": "number of documents whose exact scores are computed, at least offset + k",
        },
        "nprobe": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": _MAX_CANDIDATES,
            "default": None,
            "description": "number of inverted lists that are read",
        },
        "rerank": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": limits.max_k,
            "default": None,
            "description": "number of hits that the reranker scores again, at least offset + k",
        },
        "min_relevance": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": 1,
            "default": None,
            "description": "the least relevance of a hit",
        },
        "typos": {
            "type": "boolean",
            "default": True,
            "description": "whether words that no document has are replaced by close ones",
        },
        "operators": {
            "type": ["boolean", "null"],
            "default": None,
            "description": "whether quotation marks and asterisks are operators; null: in mode lexical alone",
        },
        "partial": {
            "type": "boolean",
            "default": False,
            "description": "whether shards that fail or are late are left out, as coverage then states",
        },
        "timeout": {
            "type": "number",
            "minimum": 0,
            "maximum": limits.timeout_s,
            "default": limits.timeout_s,
            "description": "seconds that shards have for each part of the search",
        },
    }


_SCORE: Schema = {"type": ["number", "null"]}
_SPANS: Schema = {
    "type": "array",
    "description": "start and end in code points of the title, a line break and the text",
    "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
}
_PASSAGE: Schema = {
    "type": "object",
    "required": ["text", "spans", "score", "words", "place"],
    "properties": {
        "text": {"type": "string"},
        "spans": _SPANS,
        "score": {"type": "number", "description": "comparable within the document only"},
        "words": {**_SPANS, "description": "start and end, in code points of `text`, of words of the query"},
        "place": {"type": ["string", "null"]},
    },
}
_WORD: Schema = {
    "type": "object",
    "required": ["start", "end"],
    "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}},
}
_MATCH: Schema = {
    "type": "object",
    "required": ["text", "spans", "score", "weight"],
    "properties": {
        "text": {"type": "string"},
        "spans": _SPANS,
        "score": {"type": "number", "description": "inner product of the query and the passage"},
        "weight": {"type": "number", "description": "its share in the dense score of the document"},
    },
}
_HIT: Schema = {
    "type": "object",
    "required": [
        "id",
        "score",
        "relevance",
        "dense_score",
        "lexical_score",
        "title",
        "metadata",
        "place",
        "passages",
        "matches",
        "terms",
        "mistyped",
        "words",
    ],
    "properties": {
        "id": {"type": "string"},
        "score": {"type": "number", "description": "score of the ranking; larger is better"},
        "relevance": {
            **_SCORE,
            "description": "estimate, from 0 to 1, that the document answers the query; null if unknown",
        },
        "dense_score": {**_SCORE, "description": "score of the vectors"},
        "lexical_score": {**_SCORE, "description": "score of the words (BM25)"},
        "title": {"type": "string"},
        "text": {"type": "string", "description": "missing if the request has `texts` false"},
        "metadata": {"type": "object"},
        "place": {"type": ["string", "null"], "examples": ["manual.pdf, p. 12"]},
        "passages": {
            "type": "array",
            "items": _PASSAGE,
            "description": "the best passage, and up to two others that are nearly as good",
        },
        "words": {
            "type": "array",
            "items": _WORD,
            "description": "with `explain`, the words of the title, a line break and the text that match",
        },
        "matches": {
            "type": "array",
            "items": _MATCH,
            "description": "with `explain`, the passages that contribute to the dense score, best first",
        },
        "terms": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "with `explain`, the lexical score of each term of the query that the document has",
        },
        "mistyped": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "with `explain`, mistyped terms by those of `terms` that stand for them",
        },
    },
}


def hits_schema() -> Schema:
    """Return the schema of the hits of one query."""
    return {
        "type": "object",
        "required": ["hits", "answerable", "exactness", "coverage"],
        "properties": {
            "hits": {"type": "array", "items": _HIT},
            "answerable": {
                "type": ["boolean", "null"],
                "description": "whether a hit probably answers the query; null if unknown",
            },
            "exactness": {
                "type": "string",
                "description": "what is known about the documents that are not among the hits",
                "enum": ["exact", "exact over probed lists", "approximate", "partial"],
            },
            "coverage": {
                "type": ["object", "null"],
                "description": "of a sharded index: which shards answered",
            },
        },
    }
