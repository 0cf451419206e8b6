"""`Engine.snapshot` killed at every call leaves no index or a complete one, and the next attempt succeeds."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil

import pytest
from support.faults.system_calls import FALLIBLE, FailsAt, Killed, KilledAt, release_locks
from support.indexes.changes import OLD, content, open_index, prepare, stray_files
from support.indexes.sharded import ENCODER, random_documents

from quarry import engine
from quarry.engine import AccessFailed, Engine, IndexNotFound
from quarry.formats.container.directory import Directory
from quarry.formats.shard_set import load_newest_shard_set

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="folders cannot be synced on this system")


class Unlinked(KilledAt):
    """Models a file system without hard links, on which files are copied."""

    def link(self, *_, **__):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "index"
    prepare("commit", path)
    with open_index(path) as opened:
        yield opened


@pytest.mark.parametrize("kind", [KilledAt, Unlinked])
def test_killed_at_every_call(index, tmp_path, kind, torture):
    target = tmp_path / "copy"  # all attempts share a folder, each with the orphan files of the one before
    for moment in itertools.count(1):
        calls = kind(moment)
        with calls.installed():
            with contextlib.suppress(Killed):
                index.snapshot(target)
            release_locks()
        if not calls.struck:
            break
        found = content(target) if target.exists() else {}
        assert found in ({}, OLD)
        if found:  # it was killed after the last step
            shutil.rmtree(target)
    torture.add(kills=moment - 1)
    assert moment > 8
    assert content(target) == OLD
    assert not stray_files(target)


def test_shards_killed_at_every_call(tmp_path, monkeypatch, torture):
    engine.build(random_documents(20), tmp_path / "index", encoder=ENCODER, shards=2)
    target = tmp_path / "copy"
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for moment in itertools.count(1):
            calls = KilledAt(moment)
            with calls.installed(), monkeypatch.context() as patch:
                patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # which calls `os` itself
                with contextlib.suppress(Killed):
                    index.snapshot(target)
                release_locks()
            if not calls.struck:
                break
            if any(target.glob("SHARDS-*")):
                with Engine.open(target) as copy:
                    assert copy.verify().n_documents == 20
                shutil.rmtree(target)
            else:
                with pytest.raises(IndexNotFound):
                    Engine.open(target)
        shutil.rmtree(target, ignore_errors=True)
        (target / "shard-00000000000000000000000000000000-0000").mkdir(parents=True)  # as if one was killed
        index.snapshot(target)
    torture.add(kills=moment - 1)
    folders = load_newest_shard_set(Directory(target)).folders
    assert {file.name for file in target.iterdir() if file.is_dir()} == set(folders)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_at_every_call(index, tmp_path, number, torture):
    """An error at any call is typed and leaves no file or the complete index."""
    for moment in itertools.count(1):
        target = tmp_path / str(moment)
        calls = FailsAt(moment, number, FALLIBLE | {"link"})
        with calls.installed():
            try:
                index.snapshot(target)
            except AccessFailed:
                is_made = False
            else:
                is_made = True
        if not calls.failed:
            break
        if is_made or any(target.glob("MANIFEST-*")):
            assert content(target) == OLD, calls.failed
        else:
            assert not stray_files(target), calls.failed
            index.snapshot(target)
        shutil.rmtree(target)
    torture.add(failures=moment - 1)
    assert moment > 20
