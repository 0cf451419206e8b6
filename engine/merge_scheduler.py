"""When segments are merged: in the background after a commit, or all of them when asked to."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.committer import Committer
from engine.merge_policy import MergePolicy, SegmentSize
from engine.segment_merger import SegmentMerger
from formats.directory import Directory
from formats.errors import CommitFailed, InvalidSetting
from formats.manifest import SegmentRecord
from formats.quantizer import StoredQuantizer
from formats.snapshot import OpenSegment

__all__ = ["MergeScheduler"]

_log = logging.getLogger("quarry")


class _Task(NamedTuple):
    sources: tuple[OpenSegment, ...]
    quantizer: StoredQuantizer | None


class _Abandoned(Exception):
    """A merge was told to stop."""


class MergeScheduler:
    """Merges segments as a policy says, on a thread that runs only while there is something to do.

    Where a merge fails the index stays as it was; no more are tried.

    Args:
        committer: whose segments are merged.
        threads: for training and coding.
        policy: when to merge.
        after_merge: called after each merge, on the thread that did it.
    """

    def __init__(
        self, committer: Committer, threads: int, policy: MergePolicy, after_merge: Callable[[], object]
    ) -> None:
        self._committer = committer
        self._policy = policy
        self._after_merge = after_merge
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_wanted = False
        self._failure: BaseException | None = None
        directory = Directory(committer.directory.path, before_write=self._check)
        self._merger = SegmentMerger(directory, committer.manifest.settings, threads)

    def start(self) -> None:
        """Merge in the background what the policy wants merged now."""
        with self._lock:
            if self._stop.is_set():
                return
            self._is_wanted = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="quarry-merge")
                self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being merged.

        Raises:
            Exception: what a merge in the background failed with, once.
        """
        thread = self._thread
        if thread is not None:
            thread.join()
        self.raise_failure()

    def abandon(self) -> None:
        """Give up what is being merged; the index stays as it is. Nothing is merged any more."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def raise_failure(self) -> None:
        """Raise what a merge in the background failed with, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def merge_all(self, retrain: bool) -> None:
        """Merge on this thread: as few segments as there can be, nothing deleted in them.

        Args:
            retrain: whether all rows are coded anew with a quantizer that is trained for them.

        Raises:
            FormatError: a segment is damaged; those merged before it are committed.
            InvalidSetting: `retrain` where only codes are stored.
        """
        self.wait()
        for task in list(self._retraining() if retrain else self._all()):
            self._run(task)

    def _work(self) -> None:
        """What the thread does."""
        try:
            while self._claim():
                while (task := self._next()) is not None:
                    self._run(task)
        except _Abandoned:
            self._finish(None)
        except BaseException as error:
            _log.exception("merging segments of %s failed", self._committer.directory.path)
            self._finish(error)

    def _claim(self) -> bool:
        """Whether the thread goes on; what is wanted later than this starts it anew."""
        with self._lock:
            if self._is_wanted and not self._stop.is_set():
                self._is_wanted = False
                return True
            self._thread = None
            return False

    def _finish(self, failure: BaseException | None) -> None:
        with self._lock:
            self._failure = failure
            self._stop.set()
            self._thread = None

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Abandoned

    def _run(self, task: _Task) -> None:
        with self._typed_errors():
            merged = self._merger.merge(task.sources, task.quantizer)
        self._check()
        self._committer.swap(merged)
        self._after_merge()

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CommitFailed(
                "segments could not be merged; what was committed stands",
                path=self._committer.directory.path,
                actual=str(error),
            ) from error

    def _next(self) -> _Task | None:
        """What the policy wants merged now."""
        for quantizer, segments in self._mergeable().items():
            chosen = self._policy.next_merge([_size(segment.record) for segment in segments])
            if chosen:
                return self._task([segments[number] for number in chosen], quantizer)
        return None

    def _all(self) -> Iterator[_Task]:
        """Merges that leave as few segments as there can be."""
        for quantizer, segments in self._mergeable().items():
            for group in self._policy.full_merge([_size(segment.record) for segment in segments]):
                yield self._task([segments[number] for number in group], quantizer)

    def _retraining(self) -> Iterator[_Task]:
        """The same with a new quantizer for all rows, whether or not there is something else to merge."""
        segments = self._committer.segments
        for segment in segments:
            if segment.reader.centroids.kind == "none":
                raise InvalidSetting(
                    "a quantizer cannot be trained on codes; build the index anew",
                    path=segment.reader.path,
                    expected="an index that stores centroids",
                )
        with self._typed_errors():
            trained = self._merger.train(segments)
        for group in self._policy.packed([_size(segment.record) for segment in segments]):
            yield _Task(tuple(segments[number] for number in group), trained)

    def _mergeable(self) -> dict[str, list[OpenSegment]]:
        """Segments that can be merged with one another, by the quantizer they would take ("": the newest).

        Rows of which only codes are stored cannot be coded anew, so they keep to their own quantizer.
        """
        newest = next((each.name for each in reversed(self._committer.manifest.quantizers)), "")
        groups: dict[str, list[OpenSegment]] = defaultdict(list)
        for segment in self._committer.segments:
            bound = segment.reader.centroids.kind == "none" and segment.record.quantizer != newest
            groups[segment.record.quantizer if bound else ""].append(segment)
        return groups

    def _task(self, segments: Sequence[OpenSegment], quantizer: str) -> _Task:
        return _Task(tuple(segments), self._committer.pinned_quantizer(quantizer))


def _size(record: SegmentRecord) -> SegmentSize:
    return SegmentSize(record.file.n_bytes, 1 - record.n_deleted / record.n_docs)
