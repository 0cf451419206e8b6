"""Changes that are killed, or meet a system error, at a sample of the system calls about files, or at all.

The process continues here, but its calls have no effect any more; `test_build_interrupted.py` kills real
processes.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import sys
from dataclasses import replace

import pytest
from support.faults.system_calls import FALLIBLE, FailsAt, Killed, KilledAt, SystemCalls, release_locks
from support.faults.torture import SHARE, sample
from support.indexes.changes import (
    CHANGES,
    DELETED,
    NEW,
    SMALL,
    check_recovery,
    documents,
    open_index,
    prepare,
    state_of,
    stray_files,
    work,
)
from support.indexes.inside import wait_for_merges

from quarry.formats.container.directory import WriterLimits
from quarry.formats.errors import (
    AccessFailed,
    CommitFailed,
    DurabilityUnknown,
    IndexClosed,
    MergeFailed,
    QuarryError,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="folders cannot be synced on this system")

SPILLING = replace(SMALL, writing=WriterLimits(section_bytes=1024, posting_bytes=1024, sample_bytes=1024))


@pytest.fixture
def fresh(tmp_path):
    """Return a function that makes a new copy of the index on which a change starts."""
    numbers = itertools.count()

    def make(change):
        before, path = tmp_path / change, tmp_path / f"{next(numbers)}" / "index"
        path.parent.mkdir()
        if not before.exists() and change != "new":
            with SystemCalls().installed():
                prepare(change, before)
        if before.exists():
            shutil.copytree(before, path)
        return path

    return make


NEVER = sys.maxsize
STEP = 1 if SHARE >= 1 else 11  # distance between the calls at which recoveries are killed


def killed(change, path, moment):
    """Make the change, killed at call `moment`; return the calls."""
    calls = KilledAt(moment)
    with calls.installed():
        try:
            work(change, path)
        except Killed:
            assert calls.struck
        release_locks()
    return calls


@pytest.mark.parametrize("change", CHANGES)
def test_killed_at_every_call(change, fresh, torture):
    left = {"old": 0, "new": 0}
    for moment in sample(killed(change, fresh(change), NEVER).kinds, 8, change):
        path = fresh(change)
        killed(change, path, moment)
        with SystemCalls().installed():
            left[check_recovery(change, path)] += 1
        shutil.rmtree(path.parent)
    torture.add(kills=sum(left.values()))
    assert left["old"] > 5
    assert left["new"] > 0 or change in {"new", "graphs"}  # all other changes end with the deletion of old files


@pytest.mark.parametrize("change", CHANGES)
def test_killed_again_and_again_while_recovering(change, fresh, torture):
    """Recovery succeeds after a series of attempts, each of which is killed later than the one before."""
    path, n_kills = fresh(change), 0
    for moment in itertools.count(1, STEP):
        if not killed(change, path, moment).struck:
            break
        n_kills += 1
        with SystemCalls().installed():
            state = state_of(change, path)
        if state == "new" and change == "new":
            break
    torture.add(kills=n_kills)
    with SystemCalls().installed():
        check_recovery(change, path)


MERGES = ("merge", "retrain")
ERRORS = {
    "an error of the device": (errno.EIO, FALLIBLE, False),
    "a full disk": (errno.ENOSPC, frozenset({"create", "write"}), True),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("change", CHANGES)
def test_an_error_at_every_call(change, error, fresh, torture):
    """An error at any call is typed, keeps the last commit, deletes new files, and lets the change be repeated."""
    n_failed = 0
    for path, calls in failing_calls(change, error, fresh):
        with calls.installed():
            try:
                work(change, path)
            except QuarryError as caught:
                problem = caught
            else:
                problem = None
            calls.mend()
            if calls.failed:
                check_failure(change, path, calls.failed, problem, ERRORS[error][0])
        n_failed += bool(calls.failed)
    torture.add(failures=n_failed)
    assert n_failed > 5


def failing_calls(change, error, fresh):
    """Yield a new index and system calls: the first time none of them fails, then one of a sample."""
    number, kinds, lasting = ERRORS[error]
    calls = FailsAt(NEVER, number, kinds, lasting)
    yield fresh(change), calls
    for moment in sample(calls.kinds, 5, change + error):
        path = fresh(change)
        yield path, FailsAt(moment, number, kinds, lasting)
        shutil.rmtree(path.parent)


def check_failure(change, path, failed, problem, number):
    state = state_of(change, path)
    if problem is None:  # some failures are harmless: of deletions, and of closing a file that was read
        assert state == "new", failed
    elif isinstance(problem, CommitFailed):
        assert not stray_files(path), f"{failed}: left behind {stray_files(path)}"
        assert state == "old", failed
    elif isinstance(problem, MergeFailed):
        assert not stray_files(path), f"{failed}: left behind {stray_files(path)}"
        assert change in {*MERGES, "graphs"} or state == "new", failed  # finished merges are kept
    elif isinstance(problem, (DurabilityUnknown, IndexClosed)):
        assert state == "new", failed
    else:  # an error before the change, or while reading after it
        assert isinstance(problem, AccessFailed), f"{failed}: {problem!r}"
        assert problem.errno == number, failed
        assert not failed.startswith(("write ", "rename ")), failed
    work(change, path)
    assert state_of(change, path) == "new"
    assert not stray_files(path), failed


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("change", ["commit", "delete", "background merge"])
def test_nothing_collected_is_lost(change, error, fresh, torture):
    """A commit or addition that failed can be repeated by the same writer after the error is gone."""
    n_failed = n_retried = 0
    for path, calls in failing_calls(change, error, fresh):
        with calls.installed():
            problem = persist(change, path, calls)
            n_retried += isinstance(problem, CommitFailed)
            if isinstance(problem, (CommitFailed, MergeFailed)):
                assert state_of(change, path) == "new", calls.failed
                assert not stray_files(path), calls.failed
            else:
                assert error != "a full disk" or problem is None or "write.lock" in calls.failed
        n_failed += bool(calls.failed)
    torture.add(failures=n_failed)
    assert n_retried > 2


def persist(change, path, calls):
    """Make the change, repeating each part that fails without errors of the system; return the first failure.

    A commit that fails leaves no file behind, even while the writer is open, except a quantizer for the next one.
    """
    problem = None
    try:
        with open_index(path, writable=True, thresholds=SPILLING) as index:
            for act in (
                lambda: None if change == "delete" else index.add(documents(NEW)),
                lambda: index.delete(DELETED),
                index.commit,
                lambda: wait_for_merges(index),
            ):
                files = set(path.iterdir())
                try:
                    act()
                except (CommitFailed, MergeFailed) as caught:
                    problem = problem or caught
                    calls.mend()
                    if act == index.commit:
                        left = set(path.iterdir()) - files
                        assert all(file.suffix == ".quant" for file in left), f"{calls.failed}: {left}"
                    act()
    except QuarryError as caught:
        return problem or caught
    return problem
