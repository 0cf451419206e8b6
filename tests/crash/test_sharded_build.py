"""A killed build of shards leaves the old index before the rename, and the new one after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.indexes.sharded import ENCODER, random_documents

from quarry import engine
from quarry.engine import Engine
from quarry.formats.container.directory import Directory
from quarry.formats.shard_set import load_newest_shard_set

_BUILD = """
import os, signal, sys
from pathlib import Path
from support.indexes.sharded import ENCODER, random_documents
from quarry import engine
import quarry.formats.container.directory

path, moment = sys.argv[1:]
rename = os.rename
n_manifests = 0

def renamed(source, target):
    global n_manifests
    is_root = "SHARDS" in Path(target).name
    n_manifests += "MANIFEST" in Path(target).name
    if moment == "shards" and n_manifests == 3 or moment == "before" and is_root:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
    if moment == "after" and is_root:
        os.kill(os.getpid(), signal.SIGKILL)

os.rename = renamed
engine.build(random_documents(40), path, encoder=ENCODER, shards=5, overwrite=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(("moment", "n_documents"), [("shards", 20), ("before", 20), ("after", 40)])
def test_a_build_that_is_killed(tmp_path, moment, n_documents):
    path = tmp_path / "idx"
    engine.build(random_documents(20), path, encoder=ENCODER, shards=2)
    tests = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": str(tests)}
    killed = subprocess.run(
        [sys.executable, "-c", _BUILD, path, moment], env=environment, check=False, timeout=300
    )
    assert killed.returncode == -9
    with Engine.open(path, encoder=ENCODER) as index:
        assert index.verify().n_documents == len(index) == n_documents
        assert len(index.search("w1", k=50)) == n_documents
    with Engine.open(path, encoder=ENCODER, writable=True) as index:  # deletes the orphan files of the build
        index.add(["another"])
        index.commit()
        assert len(index) == n_documents + 1
    shard_set = load_newest_shard_set(Directory(path))
    assert {each.name for each in path.iterdir()} == {shard_set.name, "write.lock", *shard_set.folders}
