"""If the lock file is deleted and a second writer commits while the first one is at work, its commit is kept."""

from __future__ import annotations

import errno
import os
import shutil

import pytest
from support.faults.system_calls import SystemCalls
from support.faults.torture import sample
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
        self.kinds, self.is_acting, self.is_done = [], False, False

    def call(self, kind, name, perform):
        if self.is_acting:
            return perform()
        self.kinds.append(kind)
        n_calls = len(self.kinds)
        if n_calls == self.moment:
            self.is_acting = True
            self.act()
            self.is_acting, self.is_done = False, True
        if self.failing and n_calls == self.moment + self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return perform()


@pytest.mark.parametrize("failing", [None, 5])
def test_another_writer_at_any_call(failing, tmp_path, torture):
    """The commit of a second writer is kept; both add the same documents, to train the same quantizer."""
    before, path = tmp_path / "before", tmp_path / "index"
    with SystemCalls().installed():
        prepare("commit", before)
    counted = Overtaken(0, None, None)
    shutil.copytree(before, path)
    with counted.installed():
        work("commit", path)
    shutil.rmtree(path)
    for moment in sample(counted.kinds, 12):
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
        assert calls.is_done
        assert content(path) == AFTER["commit"], f"call {moment}"
        work("commit", path)
        assert not stray_files(path), f"call {moment}"
        shutil.rmtree(path)
        torture.add(writers=2)
    assert torture.counts["writers"] > 30
