"""When segments are merged: in the background after a commit, or all of them when asked to."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.indexer.committer import Committer
from quarry.engine.indexer.failures import let_go
from quarry.engine.indexer.merge_policy import MergePolicy, SegmentSize
from quarry.engine.indexer.segment_merger import SegmentMerger
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CommitFailed, FormatError, InvalidSetting, MergeFailed
from quarry.formats.manifest import SegmentRecord
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["MergeScheduler"]

_log = logging.getLogger(__name__)
_MAX_PAUSE = 1 << 10


class _Task(NamedTuple):
    sources: tuple[OpenSegment, ...]
    quantizer: StoredQuantizer | None


class _Abandoned(Exception):
    """A merge was told to stop."""


class MergeScheduler:
    """Merges segments as a policy says, on a thread that runs only while there is something to do.

    Where a merge fails the index stays as it was. A segment that was found damaged is left alone from then on, and
    the others are merged without it. After any other failure, a full disk for one, merging is tried again: after 1
    more commit, and if that fails after 2, 4, 8 and so on, up to 1024.

    Args:
        committer: whose segments are merged.
        threads: for training and coding.
        policy: when to merge.
        after_merge: called after each merge, on the thread that did it.
        encoder: see `quarry.engine.indexer.segment_merger.SegmentMerger`.

    Attributes:
        is_untidy: whether a merge ended early, so that something of it may be left.
    """

    def __init__(
        self,
        committer: Committer,
        threads: int,
        policy: MergePolicy,
        after_merge: Callable[[], object],
        encoder: Encoder | None = None,
    ) -> None:
        self._committer = committer
        self._policy = policy
        self._after_merge = after_merge
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_wanted = False
        self._failure: BaseException | None = None
        self._damaged: set[Path] = set()
        self._pause = self._n_to_skip = 0
        self.is_untidy = False
        directory = Directory(committer.directory.path, before_write=partial(_check, self._stop))
        self._merger = SegmentMerger(directory, committer.manifest.settings, threads, encoder)

    def start(self) -> None:
        """Merge in the background what the policy wants merged now; to be called after each commit."""
        with self._lock:
            if self._stop.is_set() or self._committer.failure:
                return
            if self._n_to_skip:
                self._n_to_skip -= 1
                return
            self._is_wanted = True
            if self._thread is None:
                self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._work, name="quarry-merge")
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has none to give; what was committed is committed all the same
            self._thread = None
            _log.warning("segments of %s are not merged now: %s", self._committer.directory.path, error)

    def wait(self) -> None:
        """Wait until nothing is being merged.

        Raises:
            Exception: what a merge in the background failed with, once.
        """
        self._join()
        self.raise_failure()

    def abandon(self) -> None:
        """Give up what is being merged; the index stays as it is. Nothing is merged any more."""
        self._stop.set()
        self._join()

    def _join(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join()

    def raise_failure(self) -> None:
        """Raise what a merge in the background failed with, once."""
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # the error holds this frame, which must not hold the error

    def merge_all(self, retrain: bool) -> None:
        """Merge on this thread: as few segments as there can be, nothing deleted in them.

        Args:
            retrain: whether all rows are coded anew with a quantizer that is trained for them.

        Raises:
            FormatError: a segment is damaged; those merged before it are committed.
            InvalidSetting: `retrain` where only codes are stored; nothing was done.
        """
        if retrain:
            _require_centroids(self._committer.segments)
        self._join()
        if self._committer.failure:
            self.raise_failure()
        self._failure = None  # what failed is tried here again, and if it still fails, it is told here
        for task in list(self._retraining() if retrain else self._all()):
            self._run(task)
        self._pause = self._n_to_skip = 0

    def _work(self) -> None:
        """What the thread does."""
        try:
            while self._claim():
                self._run_all()
                self._pause = 0
        except _Abandoned:
            self._finish(None)
        except BaseException as error:
            _log.exception("merging segments of %s failed", self._committer.directory.path)
            let_go(error)
            self._finish(error)

    def _run_all(self) -> None:
        while (task := self._next()) is not None:
            try:
                self._run(task)
            except (MergeFailed, FormatError):
                if self._is_current(task):
                    raise

    def _is_current(self, task: _Task) -> bool:
        """Whether its sources are still there: a commit may delete the last document of one, and so its file."""
        return self._paths() >= {source.reader.path for source in task.sources}

    def _claim(self) -> bool:
        """Whether the thread goes on; what is wanted later than this starts it anew."""
        with self._lock:
            if self._is_wanted and not self._stop.is_set():
                self._is_wanted = False
                return True
            self._thread = None
            return False

    def _finish(self, failure: BaseException | None) -> None:
        """What the thread does where a merge failed, or was given up."""
        with self._lock:
            self.is_untidy = True
            self._failure = failure
            self._thread = None
            if isinstance(failure, FormatError) and failure.path in self._paths() - self._damaged:
                self._damaged.add(failure.path)
            else:
                self._pause = self._n_to_skip = min(2 * self._pause or 1, _MAX_PAUSE)

    def _paths(self) -> set[Path]:
        return {segment.reader.path for segment in self._committer.segments}

    def _run(self, task: _Task) -> None:
        with self._typed_errors():
            merged = self._merger.merge(task.sources, task.quantizer)
            _check(self._stop)
            self._committer.swap(merged)
        self._after_merge()

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, CommitFailed) as error:
            raise MergeFailed(
                "segments could not be merged; what was committed stands",
                path=self._committer.directory.path,
                actual=str(error),
            ) from error

    def _next(self) -> _Task | None:
        """What the policy wants merged now."""
        for quantizer, segments in self._mergeable(self._damaged).items():
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
        _require_centroids(segments)
        with self._typed_errors():
            trained = self._merger.train(segments)
        for group in self._policy.packed([_size(segment.record) for segment in segments]):
            yield _Task(tuple(segments[number] for number in group), trained)

    def _mergeable(self, damaged: Collection[Path] = ()) -> dict[str, list[OpenSegment]]:
        """Segments that can be merged with one another, by the quantizer they would take ("": the newest).

        Rows of which only codes are stored cannot be coded anew, so they keep to their own quantizer.

        Args:
            damaged: files of segments that are left out.
        """
        newest = next((each.name for each in reversed(self._committer.manifest.quantizers)), "")
        groups: dict[str, list[OpenSegment]] = defaultdict(list)
        for segment in self._committer.segments:
            if segment.reader.path in damaged:
                continue
            bound = segment.reader.centroids.kind == "none" and segment.record.quantizer != newest
            groups[segment.record.quantizer if bound else ""].append(segment)
        return groups

    def _task(self, segments: Sequence[OpenSegment], quantizer: str) -> _Task:
        return _Task(tuple(segments), self._committer.quantizer_for_merge(quantizer))


def _require_centroids(segments: Iterable[OpenSegment]) -> None:
    """Refuse to train on codes, which makes them worse.

    On vectors of old and new topics (40,000, 64 dimensions) coded with a quantizer for the old ones, a new one
    that was trained on what the codes stand for had errors 1.3 times (16 bytes) and 1.6 times (32 bytes) those
    before; with it .30 and .55 of the ten nearest were found in place of .33 and .61.
    """
    for segment in segments:
        if segment.reader.centroids.kind == "none":
            raise InvalidSetting(
                "the index stores codes alone, and training on them would lose more than it gains; "
                "build the index anew from its documents",
                path=segment.reader.path,
                expected="an index that stores centroids",
                actual='centroids="none"',
            )


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise _Abandoned


def _size(record: SegmentRecord) -> SegmentSize:
    return SegmentSize(record.file.n_bytes, 1 - record.n_deleted / record.n_docs)
