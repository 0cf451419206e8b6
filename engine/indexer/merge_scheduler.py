"""Merges segments: in the background after a commit, or all of them on request."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quarry.engine.indexer.commits.committer import Committer
from quarry.engine.indexer.commits.failures import clear_frames
from quarry.engine.indexer.merge_policy import MergePolicy, SegmentSize
from quarry.engine.indexer.segments.new_quantizer import ListPlan
from quarry.engine.indexer.segments.segment_merger import SegmentMerger
from quarry.engine.process.exit_gate import in_progress
from quarry.engine.progress import Report, no_report
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CommitFailed, FormatError, InvalidSetting, MergeFailed
from quarry.formats.manifest import SegmentRecord
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["MergeScheduler"]

_log = logging.getLogger(__name__)
_MAX_PAUSE = 1 << 10  # commits after which a merge that failed is tried again


class _Task(NamedTuple):
    sources: tuple[OpenSegment, ...]
    quantizer: StoredQuantizer | None

    @property
    def n_docs(self) -> int:
        """Number of live documents."""
        return sum(source.record.n_live for source in self.sources)


class _Stopped(Exception):
    """A merge is given up, because the writer is being closed."""


class MergeScheduler:
    """Merges segments as a policy says, on a thread that runs only while there is something to do.

    If a merge fails the index is unchanged. A segment that was found damaged is not merged from then on, and the
    others are merged without it. After any other failure, such as a full disk, merging is tried again: after one
    more commit, and if that fails after 2, 4, 8 and so on, up to 1024.

    Args:
        committer: the committer of the index.
        plan: decides whether a merged segment has inverted lists; its thresholds say when to merge.
        after_merge: called after each merge, on the thread that did it.
    """

    def __init__(self, committer: Committer, plan: ListPlan, after_merge: Callable[[], object]) -> None:
        self._committer = committer
        self._policy = MergePolicy(plan.thresholds.merging)
        self._after_merge = after_merge
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_wanted = False
        self._failure: BaseException | None = None
        self._damaged: set[Path] = set()
        self._pause = self._n_to_skip = 0
        base = committer.directory
        directory = Directory(base.path, before_write=partial(_check, self._stop), limits=base.limits)
        self._merger = SegmentMerger(directory, plan)

    def start(self) -> None:
        """Merge in the background what the policy selects now; call it after each commit.

        Nothing is begun while the interpreter exits: no new thread is waited for then, and a merge could end in
        the middle of a call into a native library.
        """
        with self._lock:
            if in_progress.is_closed or self._stop.is_set() or not self._committer.state.can_commit:
                return
            if self._n_to_skip:
                self._n_to_skip -= 1
                return
            self._is_wanted = True
            if self._thread is None:
                self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run_thread, name="quarry-merge")
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread can be started; the commit is done nevertheless
            self._thread = None
            _log.warning("segments of %s are not merged now: %s", self._committer.directory.path, error)

    def wait(self) -> None:
        """Wait for a merge in the background to end.

        Raises:
            Exception: what a merge in the background failed with, once.
        """
        self.join()
        self.raise_failure()

    def stop(self) -> None:
        """Give up a merge in the background, at its next write, and begin no more."""
        self._stop.set()

    def abandon(self) -> None:
        """Give up a merge in the background and wait for its end; the index is unchanged."""
        self.stop()
        self.join()

    def join(self) -> None:
        """Wait for a merge in the background to end; its failure is kept for `raise_failure`."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def raise_failure(self) -> None:
        """Raise the error that a merge in the background failed with, once."""
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # the error holds this frame, which must not hold the error

    def merge_all(self, retrain: bool, report: Report = no_report) -> None:
        """Merge on this thread, into as few segments as possible without deleted documents.

        Args:
            retrain: whether all rows are encoded again with a quantizer trained on them.
            report: called after each merge with how many documents of how many are merged.

        Raises:
            FormatError: a segment is damaged; segments merged before it are committed.
            InvalidSetting: `retrain` on an index of codes alone; nothing was done.
        """
        if retrain:
            _require_centroids(self._committer.current.segments)
        self.join()
        if not self._committer.state.can_commit:
            self.raise_failure()
        self._failure = None  # what failed is tried again here, and raised here if it still fails
        tasks, n_done = list(self._retraining() if retrain else self._all()), 0
        n_total = sum(task.n_docs for task in tasks)
        report(n_done, n_total)
        for task in tasks:
            self._run(task)
            n_done += task.n_docs
            report(n_done, n_total)
        self._pause = self._n_to_skip = 0

    def _run_thread(self) -> None:
        """Merge, unless the interpreter began to exit since the thread was started."""
        # Not `with in_progress`, by which a thread that is not a daemon begins even then: exiting would wait for a
        # merge.
        if in_progress.begin():
            try:
                self._work()
            finally:
                in_progress.end()
        else:
            with self._lock:
                self._thread = None

    def _work(self) -> None:
        """Merge until no more is wanted."""
        try:
            while self._claim():
                self._run_all()
                self._pause = 0
        except BaseException as error:
            if self._stop.is_set():  # the merge was given up, so its error does not matter
                self._finish(None)
                return
            _log.exception("merging segments of %s failed", self._committer.directory.path)
            clear_frames(error)
            self._finish(error)

    def _run_all(self) -> None:
        while (task := self._next()) is not None:
            try:
                self._run(task)
            except (MergeFailed, FormatError):
                if self._is_current(task):
                    raise
            if _may_delay_exit():  # for ever, if daemon threads commit as fast as this one merges
                return

    def _is_current(self, task: _Task) -> bool:
        """Whether its sources still exist: a commit may delete the last document of one, and so its file."""
        return self._paths() >= {source.reader.path for source in task.sources}

    def _claim(self) -> bool:
        """Return whether the thread continues; if not, the next request starts another one."""
        # `start` sets the flag and looks for a thread under this lock: a request is seen here or starts a thread.
        with self._lock:
            if self._is_wanted and not self._stop.is_set():
                self._is_wanted = False
                return True
            self._thread = None
            return False

    def _finish(self, failure: BaseException | None) -> None:
        """End the thread after a merge that failed, or was given up (None)."""
        self._committer.state.note_orphan_files()
        with self._lock:
            self._failure = failure
            self._thread = None
            if isinstance(failure, FormatError) and failure.path in self._paths() - self._damaged:
                self._damaged.add(failure.path)
            else:
                self._pause = self._n_to_skip = min(2 * self._pause or 1, _MAX_PAUSE)

    def _paths(self) -> set[Path]:
        return {segment.reader.path for segment in self._committer.current.segments}

    def _run(self, task: _Task) -> None:
        path, n_sources = self._committer.directory.path, len(task.sources)
        _log.debug("%s: merging %d segments with %d documents", path, n_sources, task.n_docs)
        with self._typed_errors():
            merged = self._merger.merge(task.sources, task.quantizer)
            _check(self._stop)
            generation = self._committer.swap(merged)
        _log.info("%s: merged %d segments in generation %d", path, n_sources, generation)
        self._after_merge()

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, CommitFailed) as error:
            raise MergeFailed(
                "segments could not be merged; the last commit is still current",
                path=self._committer.directory.path,
                actual=str(error),
            ) from error

    def _next(self) -> _Task | None:
        """Return the merge that the policy selects now, if any."""
        for quantizer, segments in self._mergeable(self._damaged).items():
            chosen = self._policy.next_merge([_size(segment.record) for segment in segments])
            if chosen:
                return self._task([segments[number] for number in chosen], quantizer)
        return None

    def _all(self) -> Iterator[_Task]:
        """Yield merges that leave as few segments as possible."""
        for quantizer, segments in self._mergeable().items():
            for group in self._policy.full_merge([_size(segment.record) for segment in segments]):
                yield self._task([segments[number] for number in group], quantizer)

    def _retraining(self) -> Iterator[_Task]:
        """Yield the same with a new quantizer for all rows, whether or not there is something else to merge."""
        segments = self._committer.current.segments
        _require_centroids(segments)
        with self._typed_errors():
            trained = self._merger.train(segments)
        for group in self._policy.pack([_size(segment.record) for segment in segments]):
            yield _Task(tuple(segments[number] for number in group), trained)

    def _mergeable(self, damaged: Collection[Path] = ()) -> dict[str, list[OpenSegment]]:
        """Group segments that can be merged with one another by the quantizer they would get ("": the newest).

        Rows of which only codes are stored cannot be encoded again, so they keep their quantizer.

        Args:
            damaged: files of segments that are left out.
        """
        newest = next((each.name for each in reversed(self._committer.current.manifest.quantizers)), "")
        groups: dict[str, list[OpenSegment]] = defaultdict(list)
        for segment in self._committer.current.segments:
            if segment.reader.path in damaged:
                continue
            is_bound = segment.reader.centroids.kind == "none" and segment.record.quantizer != newest
            groups[segment.record.quantizer if is_bound else ""].append(segment)
        return groups

    def _task(self, segments: Sequence[OpenSegment], quantizer: str) -> _Task:
        return _Task(tuple(segments), self._committer.quantizer_for_merge(quantizer))


def _may_delay_exit() -> bool:
    """Return whether the interpreter is exiting and joins this thread."""
    return not (threading.current_thread().daemon or threading.main_thread().is_alive())


def _require_centroids(segments: Iterable[OpenSegment]) -> None:
    """Check that centroids are stored: training on decoded codes makes codes worse.

    On vectors of old and new topics (40,000, 64 dimensions) encoded with a quantizer for the old ones, a new one
    trained on the decoded codes had 1.3 times (16 bytes) and 1.6 times (32 bytes) the quantization error; with it
    .30 and .55 of the ten nearest neighbors were found instead of .33 and .61.

    Raises:
        InvalidSetting: a segment has codes alone.
    """
    for segment in segments:
        if segment.reader.centroids.kind == "none":
            raise InvalidSetting(
                "the index stores codes alone, and training on them would lose more than it gains; "
                "build the index again from its documents",
                path=segment.reader.path,
                expected="an index that stores centroids",
                actual='centroids="none"',
            )


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise _Stopped


def _size(record: SegmentRecord) -> SegmentSize:
    return SegmentSize(record.file.n_bytes, 1 - record.n_deleted / record.n_docs)
