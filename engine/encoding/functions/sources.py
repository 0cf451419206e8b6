"""Embedding models recognized by the methods that they offer, without importing their libraries."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from quarry.engine.arguments import shown
from quarry.formats.errors import EncodingFailed, InvalidSetting

__all__ = ["EmbeddingSource", "check_is_plain", "embedding_source", "is_embedding_source"]

Embed = Callable[[list[str]], object]

_DIM_METHODS = ("get_embedding_dimension", "get_sentence_embedding_dimension")  # the second until version 5
_NAMES = ("model", "model_name", "model_id")  # attributes of LangChain's classes


@dataclass(frozen=True)
class EmbeddingSource:
    """The functions of a model, and what it states about its vectors.

    Attributes:
        embed_documents: function of a list of texts.
        embed_queries: the same for queries; None: that for documents.
        dim: length of a vector; None if it is not stated.
        measure_dim: finds the length of a vector by encoding one text; None for a function.
        name: name of the model; None if it has none that is the same on every machine.
        revision: distinguishes models of one name.
        is_cosine: whether vectors are compared by their angles; otherwise by inner product.
    """

    embed_documents: Embed
    embed_queries: Embed | None = None
    dim: int | None = None
    measure_dim: Callable[[], int] | None = None
    name: str | None = None
    revision: str = ""
    is_cosine: bool = True


def is_embedding_source(source: object) -> bool:
    """Return whether an object is a function, or has methods of an embedding model."""
    if isinstance(source, type | str):  # a class is callable, and a str has a method ``encode``
        return False
    return callable(source) or _is_langchain(source) or _has(source, "encode")


def embedding_source(source: object) -> EmbeddingSource:
    """Return what a function or a model offers.

    Recognized are objects with ``embed_documents`` and ``embed_query`` (LangChain's `Embeddings`), with ``encode``
    (sentence-transformers, with ``encode_document`` and ``encode_query`` if it has them; Model2Vec), and
    functions of a list of texts.

    Raises:
        InvalidSetting: it is none of these.
    """
    if is_embedding_source(source):
        if _is_langchain(source):
            return _from_langchain(source)
        if _has(source, "encode"):
            return _from_encode(source)
        if callable(source):
            check_is_plain(source)
            return EmbeddingSource(source)
    raise InvalidSetting(
        "not an embedding function",
        expected="a function of a list of texts, or a model with embed_documents and embed_query, or with encode",
        actual=shown(source),
    )


def _from_langchain(model: object) -> EmbeddingSource:
    embed_query: Callable[[str], object] = getattr(model, "embed_query")  # noqa: B009
    names = (getattr(model, name, None) for name in _NAMES)
    return EmbeddingSource(
        embed_documents=getattr(model, "embed_documents"),  # noqa: B009
        embed_queries=partial(_embed_each, embed_query),
        dim=_integer(getattr(model, "dimensions", None)),
        measure_dim=partial(_measured_dim, embed_query),
        name=next((name for name in names if isinstance(name, str) and name), None),
    )


def _embed_each(embed: Callable[[str], object], texts: list[str]) -> list[object]:
    return [embed(text) for text in texts]


def _measured_dim(embed_query: Callable[[str], object]) -> int:
    try:
        return len(np.asarray(embed_query("text")).reshape(-1))
    except Exception as error:
        raise EncodingFailed(
            "the length of a vector is unknown, because embed_query failed for one text; state it with dim=...",
            actual=f"{type(error).__name__}: {error}",
        ) from error


def _from_encode(model: object) -> EmbeddingSource:
    encode: Embed = getattr(model, "encode")  # noqa: B009
    documents, queries = (
        getattr(model, name) if _has(model, name) else encode for name in ("encode_document", "encode_query")
    )
    methods = (getattr(model, name) for name in _DIM_METHODS if _has(model, name))
    stated = (method() for method in methods)
    dim = next((length for each in stated if (length := _integer(each)) is not None), None)
    table = getattr(model, "embedding", None)
    is_static = isinstance(table, np.ndarray) and table.ndim == 2
    return EmbeddingSource(
        embed_documents=documents,
        embed_queries=queries,
        dim=_integer(getattr(model, "dim", None)) if dim is None else dim,
        name=_static_name(model) if is_static else _transformer_name(model),
        revision=_digest(table) if is_static else "",
        is_cosine=str(getattr(model, "similarity_fn_name", "cosine")) != "dot",
    )


def _static_name(model: object) -> str:
    """Return the name of the model that a Model2Vec model was made of; many may be made of one."""
    name = getattr(model, "base_model_name", None)
    return f"model2vec/{name if isinstance(name, str) and name else 'static'}"


def _digest(table: object) -> str:
    array = np.ascontiguousarray(table)
    return hashlib.blake2b(array.tobytes(), digest_size=16, person=b"static table").hexdigest()


def _transformer_name(model: object) -> str | None:
    """Return the name that a sentence-transformers model has on the hub; None for a folder's."""
    try:
        first = model[0]  # type: ignore[index]
    except (TypeError, KeyError, IndexError):
        return None
    name = getattr(getattr(first, "auto_model", None), "name_or_path", None)
    return name if isinstance(name, str) and name and not Path(name).exists() else None


def check_is_plain(function: object) -> None:
    """Check that a function is not an asynchronous one.

    Raises:
        InvalidSetting: it is; the message says how to wrap it.
    """
    either = (function, getattr(function, "__call__", None))  # noqa: B004
    if any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in either):
        raise InvalidSetting(
            "an async function cannot be called by several threads; wrap it in a function that runs it",
            expected="lambda texts: asyncio.run(embed(texts))",
            actual=shown(function),
        )


def _is_langchain(source: object) -> bool:
    return _has(source, "embed_documents") and _has(source, "embed_query")


def _has(source: object, name: str) -> bool:
    return callable(getattr(source, name, None))


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None
