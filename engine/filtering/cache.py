"""Evaluates filters over a snapshot and caches the results of recent ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from quarry.engine.filtering.evaluation import Allowed, AllowedDocs, Kinds, evaluate, find_unknown_paths
from quarry.engine.filtering.filter import Condition, count_bytes
from quarry.engine.filtering.own_fields import OWN_FIELDS
from quarry.engine.filtering.unknown_fields import UnknownFields, find_nearest_names
from quarry.formats.snapshot import OpenSegment

__all__ = ["DocumentFilter"]

_RESULT_BYTES = 4096  # of the objects of a result
_DOC_BYTES = 5  # of a document in `Allowed`


class DocumentFilter:
    """Evaluates filters over the segments of a snapshot; thread-safe.

    Args:
        segments: of the snapshot.
        cache_bytes: memory for the results of recent filters.
        terms: the analyzer of the segments' postings: returns the terms of a text.
        unknown: the fields that the users of the index were warned about.
    """

    def __init__(
        self,
        segments: Sequence[OpenSegment],
        cache_bytes: int,
        terms: Callable[[str], list[str]],
        unknown: UnknownFields,
    ) -> None:
        self._segments = segments
        self._terms = terms
        self._unknown = unknown
        self._n_live = [segment.record.n_live for segment in segments]
        n_docs = sum(segment.record.n_docs for segment in segments)
        self._result_bytes = n_docs * _DOC_BYTES + _RESULT_BYTES
        self._cache_bytes, self._held_bytes = cache_bytes, 0
        self._results: OrderedDict[Condition, tuple[AllowedDocs, Kinds]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def resident_bytes(self) -> int:
        """Memory of the cached results, in bytes."""
        return self._held_bytes

    def allowed(self, condition: Condition | None) -> AllowedDocs:
        """Return for each segment the documents that satisfy the condition; None: all live ones.

        Warns about fields that no document has, see `quarry.engine.filtering.unknown_fields`.

        Raises:
            InvalidFilter: an operand has another type than all values at its path.
            FormatError: a segment is damaged.
        """
        if condition is None:
            return [None] * len(self._segments)
        known = self._find_known(condition)
        if known is None:
            known = self._evaluate(condition)
            if self._segments:
                self.check(condition, known[1])
            self._keep(condition, known)
        return known[0]

    def check(self, condition: Condition, kinds: Kinds) -> None:
        """Warn about fields that no document has.

        Args:
            condition: an evaluated condition.
            kinds: of the values that the documents of the whole collection have, see `Evaluation`.

        Raises:
            InvalidFilter: an operand has another type than all values at its path.
        """
        for field in find_unknown_paths(condition, kinds):
            self._unknown.warn(field, partial(self.find_nearest, field))

    def evaluate(self, condition: Condition) -> tuple[AllowedDocs, Kinds]:
        """Return for each segment the documents that satisfy the condition, and the kinds of the compared values.

        For a part of a collection: types and fields are not checked, because that needs all documents.

        Raises:
            FormatError: a segment is damaged.
        """
        known = self._find_known(condition)
        if known is None:
            known = self._evaluate(condition)
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

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy the condition."""
        return sum(
            n_live if allowed is None else allowed.n
            for n_live, allowed in zip(self._n_live, self.allowed(condition), strict=True)
        )

    def _evaluate(self, condition: Condition) -> tuple[AllowedDocs, Kinds]:
        flags, kinds = evaluate(condition, self._segments, self._terms)
        each = map(Allowed, flags)
        result = [
            None if allowed.n == n_live else allowed for allowed, n_live in zip(each, self._n_live, strict=True)
        ]
        return result, kinds

    def find_nearest(self, field: str) -> list[str]:
        """Return the most similar names of fields that live documents have values for in columns."""
        names = OWN_FIELDS.union(*(segment.reader.metadata.paths for segment in self._segments))
        return find_nearest_names(field, names, self._is_known)

    def _is_known(self, field: str) -> bool:
        return field in OWN_FIELDS or any(_has_values(segment, field) for segment in self._segments)


def _has_values(segment: OpenSegment, path: str) -> bool:
    """Return whether a live document has a value in the column of a path."""
    column = segment.reader.metadata.column(path)
    if column is None or segment.deleted is None:
        return column is not None
    return bool(column.kinds_of(~segment.deleted, column.kinds))
