"""The contract of folders of index files: on disk, with recorded or failing system calls, and in memory."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.faults.memory_directory import MemoryDirectory
from support.faults.system_calls import FailsAt, ReadOnlyMedium, Recorder
from support.indexes.format_samples import manifest, quantizer, segment_record

from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.spool import Spool
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import AccessFailed, CorruptFile, IndexNotFound, TruncatedFile
from quarry.formats.manifest import find_latest_generation
from quarry.formats.segment_merge import MergeInput, merge_segments
from quarry.formats.snapshot import Snapshot, check_files
from quarry.formats.vectors.quantizer import write_quantizer

CONTENT = bytes(range(256)) * 5
UNSAFE = ("", "..", "../x.seg", "a/b", ".hidden", "a.SEG", "a b", "é", "a\0", "con", "a" * 81)


def on_disk(folder: Path, _: ExitStack) -> Directory:
    return Directory(folder)


def recorded(folder: Path, stack: ExitStack) -> Directory:
    stack.enter_context(Recorder().installed())
    return Directory(folder)


def after_failures(folder: Path, stack: ExitStack) -> Directory:
    """Return a directory in which each kind of call has failed once and which works again."""
    directory = Directory(folder)
    for action in ACTIONS.values():
        for kind in action.calls:
            run = action.prepare(directory)
            with FailsAt(1, errno.EIO, frozenset({kind})).installed(), pytest.raises(AccessFailed):
                run()
            for name in directory.names():
                directory.delete(name)
    calls = stack.enter_context(FailsAt(1, errno.EIO).installed())
    calls.mend()
    return directory


def in_memory(folder: Path, _: ExitStack) -> Directory:
    return MemoryDirectory(folder)


class Action(NamedTuple):
    """An operation on a folder.

    Attributes:
        prepare: creates the files it needs and returns the operation.
        calls: the kinds of system calls that it makes, each of which may fail.
        n_files: number of files in the folder after a failure.
    """

    prepare: Callable[[Directory], Callable[[], object]]
    calls: tuple[str, ...]
    n_files: int = 1


def put(directory: Directory, name: str = "a.seg", content: bytes = CONTENT) -> None:
    file = directory.create(name)
    file.write(content)
    file.sync()
    file.close()


def with_file(act: Callable[[Directory], object]) -> Callable[[Directory], Callable[[], object]]:
    def prepare(directory: Directory) -> Callable[[], object]:
        put(directory)
        return lambda: act(directory)

    return prepare


def with_output(method: str, *arguments: object) -> Callable[[Directory], Callable[[], object]]:
    def prepare(directory: Directory) -> Callable[[], object]:
        file = directory.create("a.seg")
        file.write(CONTENT)
        return lambda: getattr(file, method)(*arguments)

    return prepare


ACTIONS = {
    "create": Action(lambda directory: lambda: directory.create("a.seg"), ("create",), 0),
    "write": Action(with_output("write", CONTENT), ("write",)),
    "read back": Action(with_output("read_back", 0, 9), ("read",)),
    "sync a file": Action(with_output("sync"), ("fsync",)),
    "close": Action(with_output("close"), ("close",)),
    "names": Action(with_file(lambda directory: directory.names()), ("listdir",)),
    "map": Action(with_file(lambda directory: directory.map("a.seg")), ("open", "fstat")),
    "read": Action(with_file(lambda directory: directory.read("a.seg", 9999)), ("open", "fstat", "read")),
    "head": Action(with_file(lambda directory: directory.head("a.seg", 9)), ("open", "read")),
    "rename": Action(with_file(lambda directory: directory.rename("a.seg", "b.seg")), ("rename",)),
    "sync the folder": Action(with_file(lambda directory: directory.sync()), ("open", "fsync")),
}
DIRECTORIES = {"disk": on_disk, "recorded": recorded, "after failures": after_failures, "memory": in_memory}


@pytest.fixture(params=DIRECTORIES.values(), ids=DIRECTORIES)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Directory]:
    folder = tmp_path / "index"
    folder.mkdir()
    with ExitStack() as stack:
        yield request.param(folder, stack)


def test_a_new_folder_is_empty(directory: Directory) -> None:
    assert directory.names() == []
    directory.sync()


def test_what_was_written_is_read_in_every_way(directory: Directory) -> None:
    file = directory.create("a.seg")
    for start in range(0, len(CONTENT), 100):
        assert file.position == start
        file.write(memoryview(CONTENT)[start : start + 100])
    file.sync()
    file.close()
    file.close()
    mapped, loaded = directory.map("a.seg"), directory.load("a.seg", len(CONTENT))
    for opened in (mapped, loaded):
        assert opened.data.readonly
        assert opened.data == CONTENT
        assert opened.n_bytes == len(CONTENT)
        opened.close()
    assert directory.read("a.seg", len(CONTENT)) == CONTENT
    assert directory.head("a.seg", 9) == CONTENT[:9]
    assert directory.head("a.seg", 9999) == CONTENT
    assert directory.size_bytes("a.seg") == len(CONTENT)
    assert directory.may_hold("a.seg")


def test_elements_of_any_type_are_written_as_bytes(directory: Directory) -> None:
    file = directory.create("a.seg")
    file.write(memoryview(np.arange(3, dtype=np.uint16)))
    assert file.position == 6
    file.close()
    assert directory.read("a.seg", 6) == b"\0\0\1\0\2\0"


def test_a_file_is_read_back_while_it_is_written(directory: Directory) -> None:
    file = directory.create("a.tmp")
    file.write(b"0123456789")
    assert file.read_back(2, 5) == b"23456"
    with pytest.raises(TruncatedFile, match="ends early"):
        file.read_back(8, 3)
    file.write(b"x")
    file.close()
    assert directory.read("a.tmp", 99) == b"0123456789x"


def test_names_are_sorted(directory: Directory) -> None:
    for name in ("b.seg", "MANIFEST-00000000000000000001", "a.seg"):
        put(directory, name)
    assert directory.names() == ["MANIFEST-00000000000000000001", "a.seg", "b.seg"]


def test_a_file_is_created_once(directory: Directory) -> None:
    put(directory)
    with pytest.raises(FileExistsError):
        directory.create("a.seg")
    assert directory.read("a.seg", 9999) == CONTENT


def test_a_missing_file_is_reported_as_missing(directory: Directory) -> None:
    for read in (
        directory.map,
        directory.size_bytes,
        lambda name: directory.load(name, 9),
        lambda name: directory.read(name, 9),
        lambda name: directory.head(name, 9),
    ):
        with pytest.raises(FileNotFoundError):
            read("a.seg")
    assert not directory.may_hold("a.seg")
    directory.delete("a.seg")


def test_an_empty_file_cannot_be_mapped(directory: Directory) -> None:
    put(directory, content=b"")
    assert directory.read("a.seg", 0) == b""
    with pytest.raises(TruncatedFile, match=r"a\.seg: empty file"):
        directory.map("a.seg")


def test_a_file_that_is_too_large_is_not_loaded(directory: Directory) -> None:
    put(directory)
    for read in (directory.read, directory.load):
        with pytest.raises(CorruptFile, match=f"at most {len(CONTENT) - 1} bytes"):
            read("a.seg", len(CONTENT) - 1)


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_names_are_refused(directory: Directory, name: str) -> None:
    put(directory)
    for action in (
        directory.create,
        directory.map,
        directory.may_hold,
        directory.size_bytes,
        directory.delete,
        lambda name: directory.load(name, 9),
        lambda name: directory.read(name, 9),
        lambda name: directory.head(name, 9),
        lambda name: directory.rename("a.seg", name),
        lambda name: directory.rename(name, "b.seg"),
    ):
        with pytest.raises(CorruptFile, match="unsafe file name"):
            action(name)
    assert directory.names() == ["a.seg"]


def test_rename_moves_a_file_and_never_replaces_one(directory: Directory) -> None:
    put(directory, "a.tmp", b"a")
    put(directory, "b.seg", b"b")
    with pytest.raises(FileExistsError):
        directory.rename("a.tmp", "b.seg")
    with pytest.raises(AccessFailed, match=r"missing\.tmp: cannot be renamed to c\.seg") as caught:
        directory.rename("missing.tmp", "c.seg")
    assert caught.value.errno == errno.ENOENT
    directory.rename("a.tmp", "c.seg")
    assert [(name, directory.read(name, 9)) for name in directory.names()] == [("b.seg", b"b"), ("c.seg", b"a")]


def test_a_discarded_file_is_deleted(directory: Directory) -> None:
    file = directory.create("a.tmp")
    file.write(CONTENT)
    file.discard()
    file.discard()
    assert directory.names() == []
    put(directory, "a.tmp")


def test_content_outlives_its_file(directory: Directory) -> None:
    put(directory)
    opened = directory.map("a.seg")
    view = opened.data[2:9]
    array = np.frombuffer(opened.data, np.uint8)
    opened.close()
    directory.delete("a.seg")
    put(directory, content=bytes(len(CONTENT)))
    assert view == CONTENT[2:9]
    assert array.tobytes() == CONTENT


def test_a_spool_moves_to_a_temporary_file_and_deletes_it(directory: Directory) -> None:
    directory.limits = WriterLimits(section_bytes=64)
    spool = Spool(directory)
    spool.write(CONTENT)
    spool.append(b"end")
    assert len(directory.names()) == 1
    assert b"".join(spool.chunks()) == CONTENT + b"end"
    assert spool.read(len(CONTENT) - 2, 5) == CONTENT[-2:] + b"end"
    spool.close()
    assert directory.names() == []


def test_a_container_is_written_and_verified(directory: Directory) -> None:
    values = np.arange(1 << 18, dtype=np.uint32)
    writer = ContainerWriter(directory, "a.seg", FileKind.SEGMENT, bytes(16))
    writer.add("values", values)
    record = writer.finish({"n": 1})
    reader = ContainerReader(directory, "a.seg", FileKind.SEGMENT, record)
    np.testing.assert_array_equal(reader.section("values", np.uint32, (None,)).array(), values)
    assert reader.fields.integer("n", 0, 9) == 1
    assert reader.find_damage() == []
    reader.close()


def test_an_index_is_committed_merged_and_opened(directory: Directory) -> None:
    made_with = quantizer()
    stored = write_quantizer(directory, made_with)
    options = {"made_with": made_with, "quantizer_name": stored.name}
    segments = [segment_record(directory, ["a", "b"], [0], **options), segment_record(directory, ["c"], **options)]
    first = manifest(segments, [stored])
    first.commit(directory)
    snapshot = Snapshot(directory)
    assert [snapshot.find(doc_id) is not None for doc_id in "abc"] == [False, True, True]
    assert check_files(directory, snapshot.manifest) == []
    inputs = [
        MergeInput(each.reader, None if each.deleted is None else ~each.deleted, [each.reader.lists])
        for each in snapshot.segments
    ]
    merged = merge_segments(directory, inputs, made_with.nlist, made_with.code_bytes, keep_centroids=True)
    record = segments[0].__class__(file=merged, tombstones=None, quantizer=stored.name, n_docs=2, n_deleted=0)
    first.next((record,), (stored,)).commit(directory)
    assert find_latest_generation(directory) == 2
    after = Snapshot(directory)
    assert [reader.reader.ids[0] for reader in after.segments] == ["b"]
    assert len(after) == 2
    for opened in (snapshot, after):
        opened.close()


@pytest.mark.parametrize("directory_type", [Directory, MemoryDirectory])
def test_an_error_before_a_write_leaves_the_file_as_it_was(
    tmp_path: Path, directory_type: type[Directory]
) -> None:
    refusals: list[OSError] = []

    def check() -> None:
        if refusals:
            raise refusals[0]

    directory = directory_type(tmp_path, before_write=check)
    file = directory.create("a.seg")
    file.write(b"before")
    refusals.append(OSError(errno.EDQUOT, "quota"))
    with pytest.raises(OSError, match="quota"):
        file.write(b"lost")
    refusals.clear()
    file.write(b" and after")
    file.close()
    assert directory.read("a.seg", 99) == b"before and after"


CALLS = [(name, kind) for name, action in ACTIONS.items() for kind in action.calls]


@pytest.mark.parametrize(("name", "kind"), CALLS)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_failed_call_is_an_error_that_names_the_file(tmp_path: Path, name: str, kind: str, number: int) -> None:
    directory = Directory(tmp_path)
    run = ACTIONS[name].prepare(directory)
    if kind == "close":
        gc.collect()  # close files of earlier tests, whose close would fail instead
    with FailsAt(1, number, frozenset({kind})).installed() as calls, pytest.raises(AccessFailed) as caught:
        run()
    assert calls.failed.startswith(kind)
    assert caught.value.errno == number
    assert caught.value.path in {tmp_path, tmp_path / "a.seg"}
    assert len(directory.names()) == ACTIONS[name].n_files
    if kind != "close":  # a descriptor is closed even if close fails
        run()


@pytest.mark.parametrize(
    "name", [name for name, action in ACTIONS.items() if {"create", "rename"} & set(action.calls)]
)
def test_a_read_only_folder_refuses_changes(tmp_path: Path, name: str) -> None:
    directory = Directory(tmp_path)
    run = ACTIONS[name].prepare(directory)
    before = directory.names()
    with ReadOnlyMedium().installed(), pytest.raises(AccessFailed, match="a file system that can be written to"):
        run()
    assert directory.names() == before


def test_a_folder_must_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(IndexNotFound, match="expected a folder"):
            Directory(path)
