"""The writer's lock, held by real processes."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import subprocess
import sys

import pytest
from support.indexes.format_samples import n_descriptors

from quarry.formats.errors import AccessFailed, CorruptFile, IndexLocked, IndexNotFound
from quarry.formats.write_lock import LOCK_NAME, WriteLock

PRELUDE = """
import os, sys
from pathlib import Path
from quarry.formats.errors import IndexLocked
from quarry.formats.write_lock import WriteLock
folder = Path(sys.argv[1])
"""


@pytest.fixture
def start(repository, tmp_path):
    """Return a function that starts a process with a script and the folder; processes are killed at the end."""
    started = []

    def run(script):
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, str(tmp_path)],
            cwd=repository,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_one_at_a_time_in_a_process(tmp_path):
    first = WriteLock(tmp_path)
    before = n_descriptors()
    with pytest.raises(
        IndexLocked, match=rf"{re.escape(str(tmp_path))}: another writer.*process {os.getpid()}, since 20"
    ):
        WriteLock(tmp_path)
    assert n_descriptors() == before
    first.release()
    second = WriteLock(tmp_path)
    first.release()
    with pytest.raises(IndexLocked):
        WriteLock(tmp_path)
    second.release()
    assert n_descriptors() == before - 1
    assert (tmp_path / LOCK_NAME).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on this system")
def test_another_process_holds_the_lock_until_it_is_killed(tmp_path, start):
    holder = start("lock = WriteLock(folder); print('held', flush=True); sys.stdin.read()")
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(IndexLocked, match=f"process {holder.pid}, since"):
        WriteLock(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    WriteLock(tmp_path).release()


def test_another_process_cannot_take_the_lock(tmp_path, start):
    lock = WriteLock(tmp_path)
    other = start("try: WriteLock(folder)\nexcept IndexLocked as error: print(error)")
    assert f"process {os.getpid()}" in other.communicate()[0]
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_releases_nothing(tmp_path, start):
    parent = start("""
lock = WriteLock(folder)
child = os.fork()
if child == 0:
    lock.release()
    os._exit(0)
os.waitpid(child, 0)
try: WriteLock(folder)
except IndexLocked: print("still held", flush=True)
sys.stdin.read()
""")
    assert parent.stdout.readline() == "still held\n"
    with pytest.raises(IndexLocked):
        WriteLock(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_keep_the_lock_after_its_parent(tmp_path, start):
    parent = start("""
import time
lock = WriteLock(folder)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
sys.stdin.read()
""")
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        os.kill(child, 0)  # still alive
        WriteLock(tmp_path).release()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"pid": "x", "since": 1}', b'{"pid": 1}'])
def test_the_content_of_the_lock_file_is_used_in_messages_only(tmp_path, content):
    (tmp_path / LOCK_NAME).write_bytes(content)
    lock = WriteLock(tmp_path)
    (tmp_path / LOCK_NAME).write_bytes(content)
    with pytest.raises(IndexLocked, match="an unknown writer"):
        WriteLock(tmp_path)
    lock.release()


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / LOCK_NAME).symlink_to(target)
    with pytest.raises(CorruptFile, match=f"{LOCK_NAME}: the lock file is not a regular file; delete it"):
        WriteLock(tmp_path)
    assert target.read_bytes() == b"precious"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens no folders, and has no such pipes and links")
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to itself"])
def test_a_file_that_is_not_regular_is_not_a_lock(tmp_path, kind):
    path = tmp_path / LOCK_NAME
    make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link to itself": lambda: path.symlink_to(path)}
    make[kind]()
    before = n_descriptors()
    with pytest.raises(CorruptFile, match="not a regular file; delete it"):
        WriteLock(tmp_path)
    assert n_descriptors() == before


def test_a_folder_that_is_gone(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(IndexNotFound, match="the folder of the index is gone"):
            WriteLock(folder)


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl", reason="this system locks files otherwise")

    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = n_descriptors()
    with pytest.raises(AccessFailed, match="cannot be locked; expected a file system that can lock files"):
        WriteLock(tmp_path)
    assert n_descriptors() == before


def test_a_lock_that_the_system_does_not_release_in_order(tmp_path, monkeypatch):
    """If unlocking fails, closing the file releases the lock."""
    fcntl = pytest.importorskip("fcntl", reason="this system locks files otherwise")

    def fail(descriptor, operation):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    lock = WriteLock(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", fail)
        lock.release()
    WriteLock(tmp_path).release()


def test_whether_it_is_in_place_may_not_be_known(tmp_path, monkeypatch):
    def fail(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    lock = WriteLock(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", fail)
        assert not lock.is_in_place()
        with pytest.raises(AccessFailed, match="cannot be looked up"):
            lock.check()
    lock.check()
    lock.release()


class TestDeleting:
    def test_the_next_one_makes_a_new_file(self, tmp_path):
        lock = WriteLock(tmp_path)
        lock.delete()
        assert list(tmp_path.iterdir()) == []
        other = WriteLock(tmp_path)
        lock.delete()
        lock.release()
        assert other.is_in_place()
        other.release()

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
    def test_another_ones_file_stays(self, tmp_path):
        lock = WriteLock(tmp_path)
        (tmp_path / LOCK_NAME).unlink()
        other = WriteLock(tmp_path)
        lock.delete()
        assert other.is_in_place()
        other.release()


def test_the_lock_can_be_taken_on_a_full_disk(tmp_path, monkeypatch):
    def full(descriptor, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    lock = WriteLock(tmp_path)
    with pytest.raises(IndexLocked):
        WriteLock(tmp_path)
    lock.release()


def test_a_lock_without_references_is_released(tmp_path):
    lock = WriteLock(tmp_path)
    del lock
    gc.collect()
    WriteLock(tmp_path).release()


def test_an_interrupt_while_it_is_taken(tmp_path, monkeypatch):
    def interrupt(descriptor, length):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", interrupt)
        with pytest.raises(KeyboardInterrupt) as caught:
            WriteLock(tmp_path)
    assert caught.traceback  # its frames keep the object alive
    WriteLock(tmp_path).release()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_a_lock_file_that_is_deleted(tmp_path):
    """A lock whose file was deleted is reported as lost, because a new file can be locked by others."""
    lock = WriteLock(tmp_path)
    lock.check()
    (tmp_path / LOCK_NAME).unlink()
    with pytest.raises(IndexLocked, match=r"write.lock: the lock file was deleted"):
        lock.check()
    other = WriteLock(tmp_path)
    other.check()
    with pytest.raises(IndexLocked, match="the lock file was deleted"):
        lock.check()
    lock.release()
    other.check()
    other.release()


def test_a_lock_file_that_is_deleted_while_it_is_taken(tmp_path, monkeypatch):
    """If a failed build deletes the file between opening and locking, a new file is created and locked."""
    fcntl = pytest.importorskip("fcntl", reason="this system locks files otherwise")
    real, left = fcntl.flock, [3]

    def lock_too_late(descriptor, operation):
        if left[0]:
            left[0] -= 1
            (tmp_path / LOCK_NAME).unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_too_late)
    lock = WriteLock(tmp_path)
    with pytest.raises(IndexLocked, match="another writer holds the index"):
        WriteLock(tmp_path)
    lock.release()
    left[0] = 1000
    with pytest.raises(IndexLocked, match="deleted repeatedly"):
        WriteLock(tmp_path)
