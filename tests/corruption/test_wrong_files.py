"""Valid files in the wrong place are refused: swapped, stale, or of another index."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from itertools import permutations

import pytest
from support.indexes.small_index import build, current

from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, FormatError
from quarry.formats.manifest import Manifest
from quarry.formats.snapshot import Snapshot, check_files
from quarry.formats.tombstones import write_tombstones


def test_any_file_under_the_name_of_any_other(directory):
    committed = current(directory)
    contents = {name: (directory.path / name).read_bytes() for name in committed.file_names()}
    for name, other in permutations(sorted(contents), 2):
        (directory.path / name).write_bytes(contents[other])
        with pytest.raises(FormatError) as caught:
            Snapshot(directory)
        assert caught.value.path == directory.path / name
        assert check_files(directory, committed)[0].path == directory.path / name
        (directory.path / name).write_bytes(contents[name])


def test_an_older_file_under_the_name_of_a_newer(directory):
    """Older tombstones of the same segment, as from a partly restored backup, are refused."""
    committed = current(directory)
    first = committed.segments[0]
    flags = Snapshot(directory).segments[0].deleted.copy()
    flags[5:20] = True
    newer = write_tombstones(directory, first.file.file_id, flags)
    segments = (replace(first, tombstones=newer, n_deleted=int(flags.sum())), *committed.segments[1:])
    committed.next(segments, committed.quantizers).commit(directory)
    Snapshot(directory).close()
    shutil.copyfile(directory.path / first.tombstones.name, directory.path / newer.name)
    with pytest.raises(FormatError, match=f"{newer.name}: not the .* the manifest names"):
        Snapshot(directory)


def test_an_older_manifest_under_the_name_of_a_newer(directory):
    committed = current(directory)
    following = committed.next(committed.segments[:1], committed.quantizers)
    following.commit(directory)
    shutil.copyfile(directory.path / committed.name, directory.path / following.name)
    with pytest.raises(CorruptFile, match=f"{following.name}: wrong generation in a manifest"):
        Snapshot(directory)


def test_files_of_another_build_of_the_same_documents(directory, tmp_path):
    """Files of another index with the same contents are refused, because their random ids differ."""
    (tmp_path / "other").mkdir()
    other = build(tmp_path / "other")
    mine, theirs = current(directory), current(other)
    assert [record.name for record in mine.quantizers] == [record.name for record in theirs.quantizers]
    for one, two in zip(mine.segments, theirs.segments, strict=True):
        sound = (directory.path / one.file.name).read_bytes()
        shutil.copyfile(other.path / two.file.name, directory.path / one.file.name)
        with pytest.raises(CorruptFile, match="not the file that the manifest names"):
            Snapshot(directory)
        (directory.path / one.file.name).write_bytes(sound)
        shutil.copyfile(other.path / two.tombstones.name, directory.path / one.tombstones.name)
        with pytest.raises(CorruptFile, match="not the file that the manifest names"):
            Snapshot(directory)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_a_segment_that_is_a_link_or_a_folder(directory, tmp_path):
    name = current(directory).segments[0].file.name
    path = directory.path / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match=f"{name}: not a regular file"):
        Snapshot(directory)
    path.unlink()
    path.mkdir()
    with pytest.raises(CorruptFile, match=f"{name}: not a regular file"):
        Snapshot(directory)


def test_a_generation_that_was_committed_in_part(directory):
    """An unfinished commit leaves orphan files, and the last generation stays current."""
    committed = current(directory)
    (directory.path / f"manifest-{'0' * 32}.tmp").write_bytes(b"half")
    (directory.path / f"{'0' * 32}.seg").write_bytes(b"half")
    assert Snapshot(directory).manifest == committed
    assert Manifest.load(Directory(directory.path), 1) == committed
