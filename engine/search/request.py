"""Validates the queries of a search: texts, vectors, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from quarry.engine.arguments import is_masked, iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.engine.options import SearchKeywords, SearchOptions
from quarry.engine.scoring.query_vectors import Vectors, query_vectors
from quarry.formats.errors import InvalidQuery, InvalidSetting

__all__ = ["SearchRequest"]


@dataclass(frozen=True, eq=False)
class SearchRequest:
    """The queries of a search.

    Attributes:
        texts: of the queries; None: there are vectors alone.
        vectors: (n, dim) float32, of the queries; None: there are texts alone.
        is_single: whether there is one query, whose hits are returned by themselves.
    """

    texts: list[str] | None
    vectors: Vectors | None
    is_single: bool

    @classmethod
    def of(cls, queries: object, vector: object, dim: int) -> Self:
        """Check the queries that a caller gave.

        Args:
            queries: a text, several, or None.
            vector: (dim,) or (n, dim) numbers, or None.
            dim: length of a vector.

        Raises:
            InvalidQuery: there is neither, a query is not valid, or there are not as many vectors as texts.
        """
        if vector is None:
            if queries is None:
                raise InvalidQuery("there is nothing to search for", expected="a text, a vector, both, or like")
            return cls(_query_texts(queries), None, isinstance(queries, str))
        if is_masked(vector):
            raise InvalidQuery("vector has a masked number", expected="numbers")
        try:
            array = np.asarray(vector)
        except ValueError as error:  # rows of different lengths
            raise InvalidQuery("vector is not an array", actual=str(error)) from error
        is_single = array.ndim == 1
        texts = None if queries is None else _query_texts(queries)
        if texts is not None and is_single != isinstance(queries, str):
            expected = f"shape ({dim},)" if isinstance(queries, str) else f"shape ({len(texts)}, {dim})"
            raise InvalidQuery("vector does not fit the texts", expected=expected, actual=f"shape {array.shape}")
        vectors = query_vectors(array[np.newaxis] if is_single else array, dim)
        if texts is not None and len(texts) != len(vectors):
            raise InvalidQuery("not as many vectors as texts", expected=len(texts), actual=len(vectors))
        return cls(texts, vectors, is_single)

    def options(self, k: int, given: SearchKeywords, *, has_encoder: bool) -> SearchOptions:
        """Return the options of the search, in the mode that the queries allow for if none is given.

        Raises:
            InvalidSetting: an option is not valid, or the mode does not fit the queries.
        """
        if "mode" not in given and (self.texts is None or (self.vectors is None and not has_encoder)):
            given = {**given, "mode": "dense" if self.texts is None else "lexical"}
        options = SearchOptions.of(k, given)
        if self.texts is None and (options.mode != "dense" or options.rerank):
            raise InvalidSetting(
                "a vector without a text is searched in dense mode without reranking",
                expected="mode dense and no rerank, or a text too",
                actual=f"mode {options.mode}" + (f", rerank {options.rerank}" if options.rerank else ""),
            )
        if self.vectors is not None and options.mode == "lexical":
            raise InvalidSetting("lexical mode uses no vector", expected="mode dense or hybrid", actual="vector")
        return options


def _query_texts(queries: object) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        InvalidQuery: `queries` is neither a text nor several; the message has the number of a query that is not.
    """
    if isinstance(queries, str):
        return [queries]
    is_other = isinstance(queries, bytes | bytearray | Mapping) or rows_of_table(queries)
    given = None if is_other else iterator_of(queries)
    if given is None:
        raise InvalidQuery("queries are not texts", expected="a str or several", actual=type(queries).__name__)
    texts = []
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is not a text", expected="str", actual=type(text).__name__)
        texts.append(text)
    return texts
