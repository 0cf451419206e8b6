"""The folder of an index on a real file system."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from support.indexes.format_samples import n_descriptors

from quarry.formats.container.directory import Directory, is_safe_name, sync_tree
from quarry.formats.errors import CorruptFile, IndexNotFound, TruncatedFile

UNSAFE = [
    "",
    ".",
    "..",
    "../x.seg",
    "a/b",
    "/etc/passwd",
    "a\\b",
    ".hidden",
    "a.b.c",
    "a.SEG",
    "a b",
    "é",
    "a\n",
    "a\0",
]


def put(directory, name, data):
    file = directory.create(name)
    file.write(data)
    file.sync()
    file.close()


@pytest.mark.parametrize(
    "name", ["a", "MANIFEST-00000000000000000001", "0f.seg", "write.lock", "x-_.tmp", "a" * 80]
)
def test_names_of_index_files_are_safe(name):
    assert is_safe_name(name)


@pytest.mark.parametrize("name", [*UNSAFE, "a" * 81, "con", "NUL.seg", "Com1", "lpt9.tmp"])
def test_other_names_are_not(name):
    assert not is_safe_name(name)


@pytest.mark.parametrize("name", UNSAFE)
def test_nothing_is_done_with_an_unsafe_name(directory, name):
    put(directory, "a.seg", b"data")
    for action in (
        lambda: directory.create(name),
        lambda: directory.map(name),
        lambda: directory.read(name, 9),
        lambda: directory.rename("a.seg", name),
        lambda: directory.rename(name, "b.seg"),
        lambda: directory.delete(name),
    ):
        with pytest.raises(CorruptFile, match="unsafe file name"):
            action()
    assert list(directory.path.iterdir()) == [directory.path / "a.seg"]
    assert list(directory.path.parent.iterdir()) == [directory.path]


def test_an_index_is_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(IndexNotFound, match="expected a folder"):
            Directory(path)


def test_names_are_sorted_and_unknown_files_left_out(directory):
    for name in ("b.seg", "a.seg", ".hidden", "un safe", "write.lock"):
        (directory.path / name).touch()
    assert directory.names() == ["a.seg", "b.seg", "write.lock"]


def test_a_file_is_created_only_once(directory):
    put(directory, "a.seg", b"first")
    with pytest.raises(FileExistsError):
        directory.create("a.seg")
    assert directory.read("a.seg", 99) == b"first"


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_a_link_is_not_followed_or_replaced(directory):
    put(directory, "a.tmp", b"a")
    (directory.path / "link.seg").symlink_to(directory.path.parent / "outside")
    with pytest.raises(FileExistsError):
        directory.create("link.seg")
    with pytest.raises(FileExistsError):
        directory.rename("a.tmp", "link.seg")
    assert not (directory.path.parent / "outside").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes and links")
def test_a_file_that_is_not_regular_is_refused(directory):
    put(directory, "real.seg", b"data")
    before = n_descriptors()
    (directory.path / "link.seg").symlink_to("real.seg")
    (directory.path / "dangling.seg").symlink_to("nowhere")
    (directory.path / "folder.seg").mkdir()
    os.mkfifo(directory.path / "fifo.seg")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory.path / "socket.seg"))
    for name in ("link.seg", "dangling.seg", "folder.seg", "fifo.seg", "socket.seg"):
        for open_it in (directory.map, lambda name: directory.read(name, 99)):
            with pytest.raises(CorruptFile, match=f"{name}: not a regular file"):
                open_it(name)
    assert n_descriptors() == before


def test_missing_empty_and_long_files(directory):
    for open_it in (directory.map, lambda name: directory.read(name, 99)):
        with pytest.raises(FileNotFoundError):
            open_it("a.seg")
    put(directory, "empty.seg", b"")
    with pytest.raises(TruncatedFile, match=r"empty\.seg"):
        directory.map("empty.seg")
    assert directory.read("empty.seg", 0) == b""
    put(directory, "long.seg", bytes(10))
    assert directory.read("long.seg", 10) == bytes(10)
    with pytest.raises(CorruptFile, match="at most 9 bytes"):
        directory.read("long.seg", 9)


def test_reading_back_does_not_disturb_writing(directory):
    file = directory.create("a.tmp")
    file.write(b"0123456789")
    assert file.read_back(2, 5) == b"23456"
    file.write(memoryview(np.arange(3, dtype=np.uint16)))
    assert file.read_back(8, 4) == b"89\0\0"
    with pytest.raises(TruncatedFile, match="file ends early"):
        file.read_back(10, 7)
    file.write(b"x")
    assert file.position == 17
    file.close()
    file.close()
    assert directory.read("a.tmp", 99) == b"0123456789\0\0\1\0\2\0x"


@pytest.mark.parametrize("call", ["write", "lseek"])
def test_bytes_moved_before_an_interrupt(directory, monkeypatch, call):
    """A write that was interrupted before it was counted is repeated, and the end of the file is found again."""
    file = directory.create("a.tmp")
    file.write(b"0123456789")

    def interrupted(real):
        def act(*args):
            real(*args)
            raise KeyboardInterrupt

        return act

    with monkeypatch.context() as patch:
        patch.setattr(os, call, interrupted(getattr(os, call)))
        with pytest.raises(KeyboardInterrupt):
            file.write(b"abc") if call == "write" else file.read_back(2, 3)
    file.write(b"abcdef")
    file.close()
    assert directory.read("a.tmp", 99) == b"0123456789abcdef"


def test_a_file_that_is_not_closed(directory):
    before = n_descriptors()
    directory.create("a.tmp")
    assert n_descriptors() == before


def test_a_file_that_is_not_wanted(directory):
    file = directory.create("a.tmp")
    file.write(b"x")
    file.discard()
    file.discard()
    assert directory.names() == []


def test_a_system_may_take_a_write_in_parts(directory, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    put(directory, "a.seg", bytes(range(100)))
    assert directory.read("a.seg", 100) == bytes(range(100))


def test_rename_moves_and_never_replaces(directory):
    put(directory, "a.tmp", b"a")
    put(directory, "b.seg", b"b")
    with pytest.raises(FileExistsError):
        directory.rename("a.tmp", "b.seg")
    directory.rename("a.tmp", "d.seg")
    directory.sync()
    assert directory.names() == ["b.seg", "d.seg"]
    assert directory.read("b.seg", 9) == b"b"
    assert directory.read("d.seg", 9) == b"a"


def test_a_rename_that_is_done_and_reported_as_failed(directory, monkeypatch):
    """A rename that succeeds but reports an error, as over a network, counts as done; one that failed raises."""
    rename = os.rename

    def lose_the_answer(source, target):
        rename(source, target)
        raise OSError(errno.EIO, "Input/output error")

    def fail(source, target):
        raise OSError(errno.EIO, "Input/output error")

    put(directory, "a.tmp", b"a")
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        directory.rename("a.tmp", "a.seg")
    monkeypatch.setattr(os, "rename", lose_the_answer)
    directory.rename("a.tmp", "a.seg")
    assert directory.names() == ["a.seg"]


def test_a_relative_path_keeps_its_meaning(directory, monkeypatch):
    monkeypatch.chdir(directory.path.parent)
    relative = Directory(Path(directory.path.name))
    monkeypatch.chdir("/")
    put(relative, "a.seg", b"a")
    assert directory.names() == relative.names() == ["a.seg"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot sync folders")
def test_files_of_a_tree_are_synced_before_their_folders(tmp_path, monkeypatch):
    for name in ("a", "b/c", "b/d/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, "utf-8")
    synced = []

    def sync(descriptor):
        found = os.fstat(descriptor)
        synced.append((found.st_dev, found.st_ino))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(sys, "platform", "linux")
    sync_tree(tmp_path)
    paths = [tmp_path, *tmp_path.rglob("*")]
    files = {(each.stat().st_dev, each.stat().st_ino): each for each in paths}
    order = [files[each] for each in synced]
    assert sorted(order) == sorted(files.values())
    for number, path in enumerate(order):
        assert not any(each in path.parents for each in order[:number])


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.EIO, errno.ENOSPC])
def test_a_failed_full_sync_is_not_replaced_by_a_partial_one(directory, monkeypatch, number):
    """On macOS, fsync is used only if the file system does not support F_FULLFSYNC."""
    fcntl = pytest.importorskip("fcntl")
    synced = []

    def full_sync(descriptor, command):
        assert command == 51
        raise OSError(number, os.strerror(number))

    file = directory.create("a.seg")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(sys, "platform", "darwin")
    if number in {errno.ENOTSUP, errno.EINVAL}:
        file.sync()
        assert len(synced) == 1
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            file.sync()
        assert synced == []
    file.close()


def test_delete_may_come_too_late(directory):
    put(directory, "a.seg", b"a")
    directory.delete("a.seg")
    directory.delete("a.seg")
    assert directory.names() == []


def test_a_map_is_read_only_and_takes_one_descriptor(directory):
    put(directory, "a.seg", b"data")
    before = n_descriptors()
    file = directory.map("a.seg")
    assert n_descriptors() == before + 1
    assert file.data.readonly
    assert bytes(file.data) == b"data"
    file.close()
    file.close()
    assert n_descriptors() == before


@pytest.mark.parametrize("make", [lambda data: data[2:6], lambda data: np.frombuffer(data, np.uint8)[2:6]])
def test_a_view_outlives_the_close_and_the_file(directory, make):
    put(directory, "a.seg", b"0123456789")
    before = n_descriptors()
    file = directory.map("a.seg")
    view = make(file.data)
    file.close()
    directory.delete("a.seg")
    assert bytes(view) == b"2345"
    del view, file
    assert n_descriptors() == before
