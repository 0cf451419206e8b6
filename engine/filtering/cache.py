"""Evaluates filters over a snapshot and caches the results of recent ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from quarry.engine.filtering.evaluation import Allowed, AllowedDocs, Kinds, evaluate
from quarry.engine.filtering.filter import Condition, count_bytes
from quarry.engine.filtering.own_fields import FILTERED_FIELDS
from quarry.engine.filtering.unknown_fields import find_nearest_names
from quarry.formats.snapshot import OpenSegment

__all__ = ["DocumentFilter"]

_RESULT_BYTES = 4096  # of the objects of a result
_DOC_BYTES = 5  # of a document in `Allowed`


class DocumentFilter:
    """Evaluates filters over the segments of a snapshot; thread-safe.

    Args:
        segments: the segments of the snapshot.
        cache_bytes: memory for the results of recent filters.
        terms: returns terms that all documents with a text have, see `Analyzer.title_terms`.
    """

    def __init__(
        self,
        segments: Sequence[OpenSegment],
        cache_bytes: int,
        terms: Callable[[str], list[str]],
    ) -> None:
        self._segments = segments
        self._terms = terms
        self._n_live = [segment.record.n_live for segment in segments]
        n_flags = sum(segment.record.n_docs for segment in segments)
        tables = [segment.reader.passages for segment in segments]
        n_flags += sum(table.n_passages for table in tables if table.is_divided)
        self._result_bytes = n_flags * _DOC_BYTES + _RESULT_BYTES
        self._cache_bytes, self._held_bytes = cache_bytes, 0
        self._results: OrderedDict[Condition, tuple[AllowedDocs, Kinds]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def resident_bytes(self) -> int:
        """Memory of the cached results, in bytes."""
        return self._held_bytes

    def allowed(self, condition: Condition | None) -> AllowedDocs:
        """Return for each segment the documents that satisfy a condition, see `evaluate`; None: all live ones."""
        return [None] * len(self._segments) if condition is None else self.evaluate(condition)[0]

    def allowed_passages(self, condition: Condition) -> AllowedDocs:
        """Return for each segment the passages of the documents that satisfy a condition; None: all live ones."""
        return [None if docs is None else docs.passages for docs in self.allowed(condition)]

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy the condition."""
        return sum(
            n_live if docs is None else docs.n
            for n_live, docs in zip(self._n_live, self.allowed(condition), strict=True)
        )

    def evaluate(self, condition: Condition) -> tuple[AllowedDocs, Kinds]:
        """Return for each segment the documents that satisfy the condition, and the kinds of the compared values.

        For a part of a collection: types and fields are not checked, because that needs all documents.

        Raises:
            FormatError: a segment is damaged.
        """
        known = self._find_known(condition)
        if known is None:
            flags, kinds = evaluate(condition, self._segments, self._terms)
            tables = [segment.reader.passages for segment in self._segments]
            pairs = zip(map(Allowed, flags, tables), self._n_live, strict=True)
            known = [None if docs.n == n_live else docs for docs, n_live in pairs], kinds
            self._keep(condition, known)
        return known

    def _find_known(self, condition: Condition) -> tuple[AllowedDocs, Kinds] | None:
        with self._lock:
            known = self._results.get(condition)
            if known is not None:
                self._results.move_to_end(condition)
            return known

    def _keep(self, condition: Condition, result: tuple[AllowedDocs, Kinds]) -> None:
        n_bytes = self._n_bytes(condition)
        with self._lock:
            if n_bytes > self._cache_bytes or condition in self._results:
                return
            self._results[condition] = result
            self._held_bytes += n_bytes
            while self._held_bytes > self._cache_bytes:
                oldest, _ = self._results.popitem(last=False)
                self._held_bytes -= self._n_bytes(oldest)

    def _n_bytes(self, condition: Condition) -> int:
        return self._result_bytes + count_bytes(condition)

    def find_nearest(self, field: str) -> list[str]:
        """Return the most similar names of fields that live documents have values for in columns."""
        names = FILTERED_FIELDS.union(*(segment.reader.metadata.paths for segment in self._segments))
        return find_nearest_names(field, names, self._is_known)

    def _is_known(self, field: str) -> bool:
        return field in FILTERED_FIELDS or any(_has_values(segment, field) for segment in self._segments)


def _has_values(segment: OpenSegment, path: str) -> bool:
    """Return whether a live document has a value in the column of a path."""
    column = segment.reader.metadata.column(path)
    if column is None or segment.deleted is None:
        return column is not None
    return bool(column.kinds_of(~segment.deleted, column.kinds))
