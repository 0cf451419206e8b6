"""Opening and closing an index: read-only media, deleted folders and locks, exits, file descriptors."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys

import pytest
from support.faults.system_calls import ReadOnlyMedium
from support.indexes.changes import (
    NEW,
    OLD,
    content,
    documents,
    open_index,
    options,
    prepare,
    stray_files,
)
from support.indexes.format_samples import n_descriptors, preamble
from support.indexes.small_index import Container
from support.processes import environment, run_python

from quarry import engine
from quarry.engine import AccessFailed, Engine, FormatTooNew, IndexClosed, IndexLocked, IndexNotFound
from quarry.formats.container.layout import FileKind
from quarry.formats.write_lock import LOCK_NAME


@pytest.fixture
def path(tmp_path):
    """Create an index of two segments with tombstones, a quantizer and codes."""
    prepare("commit", tmp_path / "index")
    return tmp_path / "index"


def names(path):
    return {file.name for file in path.iterdir()}


class TestReadOnly:
    def test_a_reader_changes_nothing(self, path):
        """A reader makes no system call that a read-only file system refuses."""
        medium, before = ReadOnlyMedium(), names(path)
        with medium.installed(), open_index(path) as index:
            for mode in ("dense", "lexical", "hybrid"):
                assert len(index.search("old text3", k=3, mode=mode)) == 3
            index.refresh()
            index.stats()
            index.verify()
            assert len(index.get(list(OLD))) == len(index) == len(OLD)
        assert medium.refused == []
        assert names(path) == before

    def test_a_writer_reports_unsupported_features(self, path):
        medium, before = ReadOnlyMedium(), content(path)
        with medium.installed(), pytest.raises(AccessFailed, match=r"writable=False.*Read-only file system"):
            open_index(path, writable=True)
        assert medium.refused
        assert content(path) == before

    @pytest.mark.skipif(not shutil.which("unshare"), reason="unshare is not installed")
    def test_a_read_only_mount(self, path):
        script = (
            "from support.indexes.changes import open_index; from pathlib import Path\n"
            f"with open_index(Path({str(path)!r})) as index:\n"
            "    print(len(index.search('old text3', k=3)), len(index), index.verify().n_documents)\n"
        )
        command = f'mount --bind "{path}" "{path}" && mount -o remount,bind,ro "{path}" && exec "$0" -c "$1"'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command, sys.executable, script],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if "denied" in done.stderr or "not permitted" in done.stderr:
            pytest.skip("this user may not mount")
        assert done.stdout.split() == ["3", "8", "8"], done.stderr


class TestDeleted:
    def test_a_folder_that_is_deleted_under_a_reader(self, path):
        """Open files stay readable, and calls that need the deleted folder raise `IndexNotFound`."""
        with open_index(path) as index:
            shutil.rmtree(path)
            assert len(index.search("old text3", k=3)) == 3
            with pytest.raises(IndexNotFound, match="the folder of the index was deleted"):
                index.refresh()
            with pytest.raises(IndexNotFound):
                index.verify()
            assert len(index.get(["old3"])) == 1

    def test_a_folder_that_is_deleted_under_a_writer(self, path):
        with open_index(path, writable=True) as index:
            index.add(["more"])
            shutil.rmtree(path)
            with pytest.raises(IndexLocked, match="the lock file was deleted"):
                index.commit()

    def test_a_lock_file_that_is_deleted_under_a_writer(self, path):
        """A writer whose lock file was deleted changes nothing, because another writer may be active."""
        with open_index(path, writable=True) as first:
            first.add(documents(NEW))
            (path / LOCK_NAME).unlink()
            with open_index(path, writable=True) as second:
                second.add(documents({"new0": NEW["new0"]}))
                with pytest.raises(
                    IndexLocked, match="the lock file was deleted or moved; another writer may be active"
                ):
                    first.commit()
                first.close()
                second.commit()
        assert content(path) == OLD | {"new0": NEW["new0"]}
        assert not stray_files(path)

    def test_a_writer_that_was_never_closed(self, path):
        index = open_index(path, writable=True)
        index.add(["forgotten"])
        del index
        gc.collect()
        with open_index(path, writable=True) as index:
            assert len(index) == len(OLD)


def test_features_that_a_writer_must_know(path):
    """An index with unknown features can be read and replaced but not changed, and its lock is released."""
    (name,) = (name for name in names(path) if name.startswith("MANIFEST"))
    part = Container(path / name)
    part.head = preamble(FileKind.MANIFEST, flags=4, writer=128, file_id=part.file_id)  # 4: how documents are cut
    (path / name).write_bytes(part.blob())
    before = names(path)
    for _ in range(2):
        with pytest.raises(FormatTooNew, match="can be read but not changed") as caught:
            open_index(path, writable=True)
        assert caught.value.path == path / name
    assert content(path) == OLD
    assert names(path) == before
    engine.build(documents(NEW), path, overwrite=True, **options())
    assert content(path) == NEW


ENDS = {
    "it is closed twice": "index.close(); index.close()",
    "hits outlive it": "hits = index.search('old text1', k=4); index.close(); [hit.text for hit in hits]",
    "a thread is searching": (
        "import threading\n"
        "def search():\n"
        "    while True: index.search('old text1', k=4)\n"
        "threading.Thread(target=search, daemon=True).start()"
    ),
    "an exception is raised": "index.add(['more']); raise SystemExit(0)",
    "a child was forked": "import os\nif hasattr(os, 'fork') and os.fork(): os.wait()",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_interpreter_ends(path, end):
    """The interpreter exits cleanly without output, and the next writer finds only what was committed."""
    script = (
        "from support.indexes.changes import open_index; from pathlib import Path\n"
        f"index = open_index(Path({str(path)!r}), writable=True)\n"
        "index.search('old text3', k=3)\n"
    )
    done = run_python("-X", "dev", "-W", "ignore::DeprecationWarning", "-c", script + ENDS[end], timeout_s=60)
    assert (done.returncode, done.stderr) == (0, "")
    with open_index(path, writable=True) as index:
        assert len(index) == len(OLD)
    assert not stray_files(path)


def test_descriptors(path):
    """An open index holds one descriptor per segment and releases all when it is closed or cannot be opened."""
    before = n_descriptors()
    with open_index(path) as index:
        index.search("old text1", k=3)
        assert n_descriptors() - before <= 2
    assert n_descriptors() == before
    with open_index(path, writable=True) as index:
        for number in range(4):  # too few segments for a merge
            index.add([f"more {number}"])
            index.commit()
            index.search("more", k=3)
        n_segments = sum(name.endswith(".seg") for name in names(path))
        assert n_descriptors() - before <= 2 * n_segments + 1  # the lock, and each segment for reader and writer
    assert n_descriptors() == before
    for name in sorted(names(path)):
        if name != LOCK_NAME:
            (path / name).write_bytes(b"damaged")
    for writable in (False, True):
        with pytest.raises(engine.FormatError):
            open_index(path, writable=writable)
    assert n_descriptors() == before


def test_after_the_end(path):
    index = open_index(path, writable=True)
    index.close()
    for use in (index.commit, index.refresh, index.stats, lambda: index.search("x"), lambda: index.add(["x"])):
        with pytest.raises(IndexClosed):
            use()
    with Engine.open(path) as again:
        assert len(again) == len(OLD)
