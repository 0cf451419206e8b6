"""A killed build of shards leaves the old index before the rename, and the new one after it."""

from __future__ import annotations

import signal
import sys

import pytest
from support.indexes.sharded import ENCODER, random_documents
from support.processes import run_python

from quarry import engine
from quarry.engine import Engine
from quarry.formats.container.directory import Directory
from quarry.formats.shard_set import load_newest_shard_set

_BUILD = """
import sys
from support.indexes.sharded import ENCODER, random_documents
from support.processes import kill_at_rename
from quarry import engine

path, moment = sys.argv[1:]
if moment == "shards":
    kill_at_rename("MANIFEST", "before", 3)
kill_at_rename("SHARDS", moment)
engine.build(random_documents(40), path, encoder=ENCODER, shards=5, overwrite=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(("moment", "n_documents"), [("shards", 20), ("before", 20), ("after", 40)])
def test_a_build_that_is_killed(tmp_path, moment, n_documents):
    path = tmp_path / "idx"
    engine.build(random_documents(20), path, encoder=ENCODER, shards=2)
    killed = run_python("-c", _BUILD, path, moment)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with Engine.open(path, encoder=ENCODER) as index:
        assert index.verify().n_documents == len(index) == n_documents
        assert len(index.search("w1", k=50)) == n_documents
    with Engine.open(path, encoder=ENCODER, writable=True) as index:  # deletes the orphan files of the build
        index.add(["another"])
        index.commit()
        assert len(index) == n_documents + 1
    shard_set = load_newest_shard_set(Directory(path))
    assert {each.name for each in path.iterdir()} == {shard_set.name, "write.lock", *shard_set.folders}
