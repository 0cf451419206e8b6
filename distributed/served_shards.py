"""A client of an index that is served with Ray: the reading methods of `Engine`, answered by its router."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast, overload

import numpy.typing as npt

from quarry.distributed.calls import call
from quarry.distributed.routed_index import ListedShard
from quarry.engine.documents.document import Document
from quarry.engine.documents.given import checked_id, id_list
from quarry.engine.listing.documents import checked_range
from quarry.engine.listing.facets import Facets
from quarry.engine.options import SearchKeywords
from quarry.engine.search.hits.hits import Hits
from quarry.formats.errors import QuarryError

__all__ = ["ServedShards"]

_PAGE = {"documents": 256, "ids": 4096}


class ServedShards:
    """Has the reading methods of `quarry.engine.Engine`, answered by the router of an application of Ray Serve.

    Safe to use from several threads.

    Args:
        handle: the handle of the router.
        timeout_s: time limit, in seconds, of each call.

    Attributes:
        page: number of "documents" or "ids" that are read at a time.
    """

    def __init__(self, handle: Any, timeout_s: float) -> None:  # noqa: ANN401  # of Ray
        self._handle = handle
        self._timeout_s = timeout_s
        self.page = dict(_PAGE)

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

    def search(
        self,
        queries: str | Sequence[str] | None = None,
        k: int = 10,
        *,
        vector: npt.ArrayLike | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Hits | list[Hits]:
        """Search with one or several queries; see `Engine.search`."""
        return cast("Hits | list[Hits]", self._call("search", queries, k, vector=vector, **options))

    def search_vectors(self, queries: npt.ArrayLike, k: int = 10, **options: Unpack[SearchKeywords]) -> list[Hits]:
        """Search with (n, dim) query vectors in dense mode; see `Engine.search_vectors`."""
        return cast("list[Hits]", self._call("search_vectors", queries, k, **options))

    def get(self, ids: Iterable[str] | str, *, vectors: bool = False) -> list[Document]:
        """Return the documents with these ids; see `Engine.get`."""
        return cast("list[Document]", self._call("get", id_list(ids), vectors=vectors))

    def documents(
        self,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002  # as in search
        offset: int = 0,
        limit: int | None = None,
        sort: str | Sequence[str] | None = None,
    ) -> Iterator[Document]:
        """Iterate over the documents; see `Engine.documents`. With `sort` they are sent at once.

        An iterator reads the generation that it was made for, which copies of shards keep open for the next two
        commits.

        Raises:
            InvalidFilter: the filter is not valid.
            InvalidSetting: `offset` or `limit` is not an integer of 0 or more.
            QuarryError: while it was read, the index was changed more often than that.
        """
        if sort is None:
            return self._listed("documents", filter, offset, limit)
        n_skipped, n_most = checked_range(offset, limit)
        n = max(1, min(n_skipped + n_most, len(self)))
        hits = self.search("", n, filter=filter, sort=sort)[n_skipped:][:n_most]
        return (Document(hit.id, hit.text, hit.title, dict(hit.metadata)) for hit in hits)

    def ids(
        self,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002
        offset: int = 0,
        limit: int | None = None,
    ) -> Iterator[str]:
        """Iterate over the ids of documents; see `documents`."""
        return self._listed("ids", filter, offset, limit)

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
        """Count the documents that have each value at a path of the metadata; see `Engine.facets`."""
        given = {"query": query, "filter": filter, "limit": limit, "operators": operators, "prefix": prefix}
        return cast("Facets", self._call("facets", field, **given))

    def count(self, filter: Mapping[str, object] | None = None) -> int:  # noqa: A002  # as in Engine.count
        """Return the number of documents that pass a filter, or of all; see `Engine.count`."""
        return int(self._call("count", filter))

    def stats(self) -> dict[str, object]:
        """Return statistics; see `RoutedIndex.stats`."""
        return cast("dict[str, object]", self._call("stats"))

    def folder(self) -> Path:
        """Return the folder of the index."""
        return cast("Path", self._call("folder"))

    def refresh(self) -> bool:
        """Search the newest generation from now on; return whether there was a newer one."""
        return bool(self._call("refresh"))

    def close(self) -> None:
        """Do nothing: the application runs until `ray.serve.delete` or `ray.serve.shutdown`."""

    def __len__(self) -> int:
        return int(self._call("__len__"))

    def __contains__(self, doc_id: object) -> bool:
        return bool(self.get(checked_id(doc_id, "the id")))

    def __iter__(self) -> Iterator[Document]:
        return self.documents()

    def _listed(
        self, kind: str, only: Mapping[str, object] | None, offset: object, limit: object
    ) -> Iterator[Any]:
        """Check the arguments, and iterate over documents, or whatever `RoutedIndex.page` calls so."""
        n_skipped, n_most = checked_range(offset, limit)
        parts: list[ListedShard] = self._call("parts", only)
        return self._pages(kind, only, parts, n_skipped, n_most)

    def _pages(
        self,
        kind: str,
        only: Mapping[str, object] | None,
        parts: Sequence[ListedShard],
        n_skipped: int,
        n_most: int,
    ) -> Iterator[Any]:
        for part in parts:
            n_before = min(n_skipped, part.n_documents)
            n_skipped -= n_before
            n_wanted = min(part.n_documents - n_before, n_most)
            n_most -= n_wanted
            for low in range(0, n_wanted, self.page[kind]):
                n_page = min(self.page[kind], n_wanted - low)
                yield from self._call("page", part, only, n_before + low, n_page, kind)

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401  # of any method
        answer = call(self._handle, "call", (method, arguments, keywords), self._timeout_s, "the router")
        if isinstance(answer, QuarryError):
            raise answer
        return answer
