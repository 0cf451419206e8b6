"""Staging folders are deleted by the next writer of their index only."""

from __future__ import annotations

import sys

import pytest
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import Engine
from quarry.engine.building.workers.attempt import collect_staging, make_staging
from quarry.formats.write_lock import WriteLock


@pytest.mark.parametrize("shards", [None, 2])
def test_the_next_writer_deletes_them(tmp_path, shards):
    path = tmp_path / "idx"
    engine.build(["a"], path, encoder=ENCODER, shards=shards)
    left, other = make_staging(path), make_staging(tmp_path / "another")
    (left / "file.seg").write_bytes(b"part of a segment")
    Engine.open(path, encoder=ENCODER).close()
    assert left.exists()  # a reader deletes nothing
    Engine.open(path, encoder=ENCODER, writable=True).close()
    assert not left.exists()
    again = make_staging(path)
    engine.build(["a"], path, encoder=ENCODER, shards=shards, overwrite=True)
    assert not again.exists()
    assert other.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_through_a_link(tmp_path):
    (tmp_path / "disk" / "idx").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "idx")
    staging = make_staging(link)
    assert staging.parent == tmp_path / "disk"
    lock = WriteLock(tmp_path / "disk" / "idx")
    collect_staging(tmp_path / "disk" / "idx", lock)
    lock.release()
    assert not staging.exists()


def test_nothing_is_deleted_without_the_lock(tmp_path):
    (tmp_path / "idx").mkdir()
    staging = make_staging(tmp_path / "idx")
    lock = WriteLock(tmp_path / "idx")
    lock.release()
    collect_staging(tmp_path / "idx", lock)
    assert staging.exists()
