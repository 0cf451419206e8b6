"""If the lock file is deleted and a second writer commits while the first one is at work, its commit is kept."""

from __future__ import annotations

import errno
import itertools
import os
import shutil

import pytest
from support.faults.system_calls import SystemCalls
from support.faults.torture import SHARE
from support.indexes.changes import AFTER, content, prepare, stray_files, work

from quarry.formats.errors import QuarryError
from quarry.formats.write_lock import LOCK_NAME

pytestmark = pytest.mark.skipif(
    not hasattr(os, "O_DIRECTORY"), reason="open files cannot be deleted on this system"
)


class Overtaken(SystemCalls):
    """Runs `act` before the n-th call, and fails the call that comes `failing` calls later."""

    def __init__(self, moment, act, failing):
        super().__init__()
        self.moment, self.act, self.failing = moment, act, failing
        self.n_calls, self.is_acting, self.is_done = 0, False, False

    def call(self, kind, name, perform):
        if self.is_acting:
            return perform()
        self.n_calls += 1
        if self.n_calls == self.moment:
            self.is_acting = True
            self.act()
            self.is_acting, self.is_done = False, True
        if self.failing and self.n_calls == self.moment + self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return perform()


@pytest.mark.parametrize("failing", [None, 5])
def test_another_writer_at_every_call(failing, tmp_path, torture):
    """The commit of a second writer is kept; both add the same documents, to train the same quantizer."""
    before, path = tmp_path / "before", tmp_path / "index"
    with SystemCalls().installed():
        prepare("commit", before)
    for moment in itertools.count(1, 1 if SHARE else 3):
        shutil.copytree(before, path)
        (path / LOCK_NAME).unlink(missing_ok=True)

        def overtake():
            (path / LOCK_NAME).unlink(missing_ok=True)
            work("commit", path)

        calls = Overtaken(moment, overtake, failing)
        with calls.installed():
            try:
                work("commit", path)
            except (QuarryError, AssertionError):
                assert calls.is_done
        if not calls.is_done:
            break
        assert content(path) == AFTER["commit"], f"call {moment}"
        work("commit", path)
        assert not stray_files(path), f"call {moment}"
        shutil.rmtree(path)
        torture.add(writers=2)
    assert torture.counts["writers"] > 60
