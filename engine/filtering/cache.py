"""The documents of a snapshot that pass a filter, remembered for the filters asked for lately."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from quarry.engine.filtering.allowed import Allowed, AllowedDocs
from quarry.engine.filtering.evaluation import evaluated
from quarry.engine.filtering.filter import Condition
from quarry.formats.snapshot import OpenSegment

__all__ = ["DocumentFilter"]

_ANSWER_BYTES = 4096  # of an answer's objects, and of the condition
_DOC_BYTES = 5  # of a document in `Allowed`


class DocumentFilter:
    """Evaluates filters over the segments of a snapshot; safe to use from several threads.

    Args:
        segments: of the snapshot.
        cache_bytes: memory for the answers to filters asked for lately.
    """

    def __init__(self, segments: Sequence[OpenSegment], cache_bytes: int) -> None:
        self._segments = segments
        n_docs = sum(segment.record.n_docs for segment in segments)
        self._answer_bytes = n_docs * _DOC_BYTES + _ANSWER_BYTES
        self._n_kept = cache_bytes // self._answer_bytes
        self._answers: OrderedDict[Condition, AllowedDocs] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def resident_bytes(self) -> int:
        """Memory of the answers that are kept now."""
        return len(self._answers) * self._answer_bytes

    def allowed(self, condition: Condition | None) -> AllowedDocs:
        """For each segment the documents that pass; None: all of them.

        Raises:
            InvalidFilter: an operand is of another type than all values at its path.
            FormatError: a segment is damaged.
        """
        if condition is None:
            return [None] * len(self._segments)
        with self._lock:
            known = self._answers.get(condition)
            if known is not None:
                self._answers.move_to_end(condition)
                return known
        answer = self._evaluated(condition)
        with self._lock:
            self._answers[condition] = answer
            while len(self._answers) > self._n_kept:
                self._answers.popitem(last=False)
        return answer

    def count(self, condition: Condition) -> int:
        """The number of documents that pass."""
        return sum(
            segment.record.n_docs - segment.record.n_deleted if allowed is None else allowed.n
            for segment, allowed in zip(self._segments, self.allowed(condition), strict=True)
        )

    def _evaluated(self, condition: Condition) -> AllowedDocs:
        found = evaluated(condition, [segment.reader for segment in self._segments])
        answer: list[Allowed | None] = []
        for segment, flags in zip(self._segments, found, strict=True):
            allowed = Allowed(flags if segment.deleted is None else flags & ~segment.deleted)
            every = allowed.n == segment.record.n_docs - segment.record.n_deleted
            answer.append(None if every else allowed)
        return answer
