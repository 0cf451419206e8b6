"""The reading methods of an index: they validate requests, which a view of its current generation answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack, overload

import numpy.typing as npt

from quarry.engine.arguments import checked_flag
from quarry.engine.documents.document import Document
from quarry.engine.documents.given import checked_id, id_list
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.index.view import View
from quarry.engine.listing.facets import FacetRequest, Facets
from quarry.engine.options import SearchKeywords, SearchOptions
from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.scoring.query_vectors import query_vectors
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.query import SearchRequest
from quarry.formats.errors import InvalidQuery, InvalidSetting

__all__ = ["CurrentView", "IndexReader"]

_BROWSED_BY = ("filter", "sort", "boost", "group_by")  # what finds documents without a text


class CurrentView(Protocol):
    """What has the view that an index is read by."""

    def get(self, *, to_read: bool = False) -> View[Any]:
        """Return the current view.

        Args:
            to_read: whether it is for a request, before which an index may be refreshed.

        Raises:
            IndexClosed: the index is closed.
        """
        ...


class IndexReader:
    """The requests that one view of an index answers: searches, documents by id, counts and statistics."""

    _view: CurrentView

    @overload
    def search(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self, queries: str, k: int = ..., *, vector: npt.ArrayLike | None = ..., **options: Unpack[SearchKeywords]
    ) -> Hits: ...

    @overload
    def search(
        self,
        queries: Sequence[str],
        k: int = ...,
        *,
        vector: npt.ArrayLike | None = ...,
        **options: Unpack[SearchKeywords],
    ) -> list[Hits]: ...

    @overload
    def search(
        self, queries: None = ..., k: int = ..., *, vector: npt.ArrayLike, **options: Unpack[SearchKeywords]
    ) -> Hits | list[Hits]: ...

    @overload
    def search(self, queries: None = ..., k: int = ..., **options: Unpack[SearchKeywords]) -> Hits: ...

    @finishes_before_exit
    def search(
        self,
        queries: str | Sequence[str] | None = None,
        k: int = 10,
        *,
        vector: npt.ArrayLike | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Hits | list[Hits]:
        """Search with one or several queries: texts, vectors, or both; hits are sorted best first.

        Args:
            queries: one text, or several; None: the vectors alone, or the document `like`. With `filter`, `sort`,
                `boost` or `group_by` an empty text, or none of the three, finds all documents that pass the
                filter; their scores are 0, and equal ones are in the order of their ids.
            k: number of hits; fewer are returned only if the index has fewer documents, fewer pass the filter or
                satisfy the conditions of the query, or in lexical mode fewer contain a term of it.
            vector: (dim,) vector of the text, or (n, dim) vectors of several texts, which are then not encoded.
                None: texts are encoded.
            **options: the other fields of `SearchOptions` (docs/search.md): `mode`, `filter`, `like`,
                `offset`, `candidates`, `nprobe`, `explain`, `fusion`, `dense_weight`, `rerank`, `min_relevance`,
                `typos`, `operators`, `prefix`, `partial`, `timeout`, `unit`, `context`, `sort`, `boost`,
                `group_by`, `group_size`, `total`. Without `mode` a search is hybrid; dense if there is no
                text; lexical if there is no vector, and the index was built without an encoder.

        Returns:
            The hits of the text or vector, or a list with the hits of each. `Hits.exactness` states whether a
            better document may have been missed. Dense scores are inner products or cosines, and for the metric
            "l2" minus the squared Euclidean distance.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidQuery: there is neither text nor vector nor `like`, or `like` and another; no document has the
                id `like`; a query is not a text, has no token (except in lexical mode, where it finds nothing), or
                the encoder returns no usable vector for it; a vector is not finite numbers of the right shape, or
                above 1e18.
            InvalidFilter: the filter is malformed, or compares values of different types.
            InvalidSetting: an option is out of range or unknown, the mode does not fit the queries, or a field of
                `sort`, `boost` or `group_by` is one that no document has, or has values of other types.
            EncoderMismatch: the vectors of the index are of another encoder, or of none, and no vector is given
                (lexical mode works).
            EncodingFailed: an embedding function failed.
            ShardTimeout: a shard of the index did not answer within `timeout`, and not `partial`.
        """
        is_like = options.get("like") is not None
        if is_like and (queries is not None or vector is not None):
            raise InvalidQuery("a search needs either queries or like", expected="one of them")

        view = self._view.get(to_read=True)
        if queries is None and vector is None and any(options.get(name) is not None for name in _BROWSED_BY):
            queries = ""
        if is_like:
            return view.search_like(SearchOptions.of(k, options))
        request = SearchRequest.of(queries, vector, view.metric.dim)
        hits = view.search(
            request.texts, request.options(k, options, has_encoder=view.has_encoder), request.vectors
        )
        return hits[0] if request.is_single else hits

    @finishes_before_exit
    def search_vectors(self, queries: npt.ArrayLike, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hits]:
        """Search with (n, dim) query vectors, converted to float32, in dense mode; see `search`.

        Raises:
            InvalidQuery: not numeric, the wrong shape, or values that are not finite or above 1e18.
        """
        options.setdefault("mode", "dense")
        chosen = SearchOptions.of(k, options)
        if chosen.mode != "dense" or chosen.rerank or chosen.like is not None:
            raise InvalidSetting(
                "vectors are searched in dense mode without reranking",
                expected="mode dense, no rerank, no like",
                actual=chosen.mode,
            )

        view = self._view.get(to_read=True)
        return view.search(None, chosen, query_vectors(queries, view.metric.dim))

    @finishes_before_exit
    def get(self, ids: Iterable[str] | str, *, vectors: bool = False) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored.

        Args:
            ids: one id, or several.
            vectors: whether `Document.vectors` are read too, as stored: rounded to float16 or int8, or
                decoded from codes (see `Document.stored_as`), and of norm 1 for the metric "cosine".

        Raises:
            InvalidSetting: not a str or an iterable of str.
        """
        wanted, has_vectors = id_list(ids), checked_flag(vectors, "vectors")
        return self._view.get(to_read=True).documents(wanted, with_vectors=has_vectors)

    def __contains__(self, doc_id: object) -> bool:
        wanted = checked_id(doc_id, "the id")
        return self._view.get(to_read=True).has(wanted)

    def __len__(self) -> int:
        return self._view.get(to_read=True).n_documents

    @finishes_before_exit
    def count(self, filter: Mapping[str, object] | None = None) -> int:  # noqa: A002  # as in search
        """Return the number of documents that pass a filter (docs/documents.md); None: of all.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidFilter: the filter is malformed, or compares values of different types.
        """
        if filter is None:
            return len(self)
        condition = parse_filter(filter)
        return self._view.get(to_read=True).count(condition)

    @finishes_before_exit
    def facets(
        self,
        field: str,
        *,
        query: str | None = None,
        filter: Mapping[str, object] | None = None,  # noqa: A002
        limit: int | None = 100,
        operators: bool | None = None,
        prefix: bool = False,
    ) -> Facets:
        """Count the documents that have each value at a path of the metadata.

        Args:
            field: the path: keys joined by dots; ``id`` and ``title`` are the document's own, and not what its
                metadata has at these paths.
            query: only documents with one of its analyzed terms are counted, those that a search in mode "lexical"
                finds with a large enough k. Vectors are not used, because they
                rank all documents and exclude none. None: all documents.
            filter: only documents that pass it; see `search`.
            limit: largest number of values to return, the most frequent ones; None: all.
            operators: whether signs of the query are operators, as in `search`.
            prefix: whether the last word of the query is the beginning of a word, as in `search`.

        Warns:
            UnknownFieldWarning: the filter compares a field that no document has.

        Raises:
            InvalidQuery: the query is not a text.
            InvalidFilter: the filter is malformed, or compares values of different types.
            InvalidSetting: `field` is not a text, `limit` no integer of 0 or more, or `operators` or `prefix` is
                not a flag.
        """
        request = FacetRequest.of(field, query, limit)
        options = SearchOptions(mode="lexical", filter=filter, operators=operators, prefix=prefix)
        return self._view.get(to_read=True).facets(request, options)

    @finishes_before_exit
    def stats(self) -> dict[str, object]:
        """Return statistics of the index, its backends and its memory.

        Returns:
            generation, n_documents, n_deleted, n_passages and n_centroids (deleted ones included), n_segments,
            dim, metric, representation, encoder (its name), stored ("int8", "float16" or "none"), code_bytes,
            dense_weight, size_bytes, drift (how far documents have moved away from the quantizer, with advice),
            bytes (by part of the files), backend (which one was chosen for how many segments, and why) and memory
            (bytes by use).
        """
        return self._view.get(to_read=True).statistics()
