"""`Engine.sync` killed at chosen moments leaves the old or the new index, and the next run completes it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.indexes.word_encoder import WordEncoder
from support.processes import run_python

from quarry import engine
from quarry.engine import Engine

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")

SCRIPT = """
import os, signal, sys
from support.indexes.word_encoder import WordEncoder
from quarry.engine import Engine
from quarry.readers.sync import folder_sync
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import Manifest

folder, path, moment = sys.argv[1:]

def strike(owner, name, number, after=False):
    real, calls = getattr(owner, name), [0]
    def struck(*arguments, **keywords):
        calls[0] += 1
        result = real(*arguments, **keywords) if after else None
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result if after else real(*arguments, **keywords)
    setattr(owner, name, struck)

strikes = {
    "first file": (folder_sync, "read_content", 1),
    "middle": (folder_sync, "read_content", 12),
    "last file": (folder_sync, "read_content", 25, True),
    "before manifest": (Manifest, "commit", 1),
    "after manifest": (Manifest, "commit", 1, True),
    "after the ninth of many commits": (Manifest, "commit", 9, True),
}
thresholds = Thresholds(sync_s=0 if "many" in moment else 300)
with Engine.open(path, writable=True, encoder=WordEncoder(dim=16), threads=1, thresholds=thresholds) as index:
    strike(*strikes[moment])
    index.sync(folder)
"""
OLD = 1_600_000_000_000_000_000


def write(path: Path, text: str, modified: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(modified, modified))


def texts(index: Engine) -> dict[str, str]:
    return {hit.id: hit.text for hit in index.search("text", k=100, mode="dense")}


def prepare(folder: Path, path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Build an index of a folder, and change the folder; return the texts before and after."""
    folder.mkdir()
    for number in range(20):
        write(folder / f"{number}.txt", f"old text {number}", OLD)
    engine.build(folder, path, encoder=WordEncoder(dim=16), threads=1)
    before = {f"{number}.txt": f"old text {number}" for number in range(20)}
    after = dict(before)
    for number in range(5, 30):  # 15 are changed, 10 are new
        after[f"{number}.txt"] = f"new text {number}"
        write(folder / f"{number}.txt", f"new text {number}", OLD + 1)
    for number in range(5):
        (folder / f"{number}.txt").unlink()
        del after[f"{number}.txt"]
    return before, after


def kill(folder: Path, path: Path, moment: str) -> None:
    done = run_python("-c", SCRIPT, folder, path, moment)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("moment", ["first file", "middle", "last file", "before manifest", "after manifest"])
def test_killed(tmp_path: Path, moment: str) -> None:
    folder, path = tmp_path / "files", tmp_path / "index"
    before, after = prepare(folder, path)
    kill(folder, path, moment)
    with Engine.open(path, writable=True, encoder=WordEncoder(dim=16), threads=1) as index:
        assert texts(index) == (after if moment == "after manifest" else before)
        index.verify()
        report = index.sync(folder)
        assert len(report.added) == (0 if moment == "after manifest" else 10)
        assert texts(index) == after


def test_a_run_of_many_commits_goes_on_after_the_last_one(tmp_path: Path) -> None:
    folder, path = tmp_path / "files", tmp_path / "index"
    before, after = prepare(folder, path)
    kill(folder, path, "after the ninth of many commits")
    with Engine.open(path, writable=True, encoder=WordEncoder(dim=16), threads=1) as index:
        there = texts(index)
        n_done = sum(there.get(name) == text != before.get(name) for name, text in after.items())
        assert 0 < n_done < 25
        assert all(text in (before.get(name), after.get(name)) for name, text in there.items())
        index.verify()
        report = index.sync(folder)
        assert len(report.added) + len(report.changed) == 25 - n_done
        assert texts(index) == after
