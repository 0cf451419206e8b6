"""The documents of a snapshot that pass a filter, remembered for the filters asked for lately."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from quarry.engine.filtering.allowed import Allowed, AllowedDocs
from quarry.engine.filtering.evaluation import Kinds, evaluated, unknown_paths
from quarry.engine.filtering.filter import Condition
from quarry.engine.filtering.own_fields import OWN_FIELDS
from quarry.engine.filtering.unknown_fields import UnknownFields, nearest_names
from quarry.formats.snapshot import OpenSegment

__all__ = ["DocumentFilter"]

_ANSWER_BYTES = 4096  # of an answer's objects, and of the condition
_DOC_BYTES = 5  # of a document in `Allowed`


class DocumentFilter:
    """Evaluates filters over the segments of a snapshot; safe to use from several threads.

    Args:
        segments: of the snapshot.
        cache_bytes: memory for the answers to filters asked for lately.
        terms: gives the terms of a text as they were made for the postings of the segments.
        unknown: the fields that were warned about while the index is open.
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
        n_docs = sum(segment.record.n_docs for segment in segments)
        self._answer_bytes = n_docs * _DOC_BYTES + _ANSWER_BYTES
        self._n_kept = cache_bytes // self._answer_bytes
        self._answers: OrderedDict[Condition, tuple[AllowedDocs, Kinds]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def resident_bytes(self) -> int:
        """Memory of the answers that are kept now."""
        return len(self._answers) * self._answer_bytes

    def allowed(self, condition: Condition | None) -> AllowedDocs:
        """For each segment the documents that pass; None: all of them.

        Warns of fields that no document has, see `engine.unknown_fields`.

        Raises:
            InvalidFilter: an operand is of another type than all values at its path.
            FormatError: a segment is damaged.
        """
        if condition is None:
            return [None] * len(self._segments)
        known = self._known(condition)
        if known is None:
            known = self._evaluated(condition)
            if self._segments:
                for field in unknown_paths(condition, known[1]):
                    self._unknown.warn(field, partial(self.nearest, field))
            self._keep(condition, known)
        return known[0]

    def evaluate(self, condition: Condition) -> tuple[AllowedDocs, Kinds]:
        """Return for each segment the documents that pass, and the kinds of values that were compared.

        For a part of a collection: nothing is checked or warned about, because that depends on all documents.

        Raises:
            FormatError: a segment is damaged.
        """
        known = self._known(condition)
        if known is None:
            known = self._evaluated(condition)
            self._keep(condition, known)
        return known

    def _known(self, condition: Condition) -> tuple[AllowedDocs, Kinds] | None:
        with self._lock:
            known = self._answers.get(condition)
            if known is not None:
                self._answers.move_to_end(condition)
            return known

    def _keep(self, condition: Condition, answer: tuple[AllowedDocs, Kinds]) -> None:
        with self._lock:
            self._answers[condition] = answer
            while len(self._answers) > self._n_kept:
                self._answers.popitem(last=False)

    def count(self, condition: Condition) -> int:
        """The number of documents that pass."""
        return sum(
            segment.record.n_docs - segment.record.n_deleted if allowed is None else allowed.n
            for segment, allowed in zip(self._segments, self.allowed(condition), strict=True)
        )

    def _evaluated(self, condition: Condition) -> tuple[AllowedDocs, Kinds]:
        flags, kinds = evaluated(condition, self._segments, self._terms)
        answer: list[Allowed | None] = []
        for segment, found in zip(self._segments, flags, strict=True):
            allowed = Allowed(found)
            every = allowed.n == segment.record.n_docs - segment.record.n_deleted
            answer.append(None if every else allowed)
        return answer, kinds

    def nearest(self, field: str) -> list[str]:
        """The names of the fields most like this one, of those that live documents have and columns tell of."""
        names = OWN_FIELDS.union(*(segment.reader.metadata.paths for segment in self._segments))
        return nearest_names(field, names, self._is_known)

    def _is_known(self, field: str) -> bool:
        return field in OWN_FIELDS or any(_has_values(segment, field) for segment in self._segments)


def _has_values(segment: OpenSegment, path: str) -> bool:
    """Whether a live document has a value in the column of a path."""
    column = segment.reader.metadata.column(path)
    if column is None or segment.deleted is None:
        return column is not None
    return bool(column.kinds_of(~segment.deleted, column.kinds))
