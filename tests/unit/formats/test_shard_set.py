"""Shard sets, the roots of sharded indexes."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import xxhash
from support.indexes.format_samples import FILE_ID, preamble, write_file

from quarry.formats.container.layout import FileKind
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import CorruptFile, FormatError, FormatTooNew, IndexNotFound
from quarry.formats.shard_set import (
    MAX_SHARDS,
    ShardSet,
    find_latest_shard_set,
    has_shard_set,
    load_newest_shard_set,
    shard_of,
)

PARENT = bytes(range(100, 116))
SET = ShardSet(generation=1, set_id=FILE_ID, parent_id=PARENT, folders=("shard-a", "shard-b", "shard-c"))
FIELDS = {
    "generation": 1,
    "parent_id": PARENT,
    "routing": "xxh3-64",
    "folders": [{"name": "shard-a"}, {"name": "shard-b"}],
}


@pytest.mark.parametrize(
    "made",
    [
        SET,
        replace(SET, generation=(1 << 64) - 1),
        replace(SET, folders=("x",)),
        replace(SET, folders=tuple(f"shard-{number}" for number in range(MAX_SHARDS))),
    ],
)
def test_a_shard_set_comes_back(directory, made):
    assert not has_shard_set(directory)
    made.commit(directory)
    assert directory.names() == [made.name]
    assert ShardSet.load(directory, made.generation) == load_newest_shard_set(directory) == made
    assert ContainerReader(directory, made.name, FileKind.SHARDS).find_damage() == []
    assert made.is_newest(directory)
    assert has_shard_set(directory)


def test_the_highest_generation_is_the_index(directory):
    with pytest.raises(IndexNotFound, match="SHARDS-<generation>"):
        find_latest_shard_set(directory)
    for generation in (9, 10, 2):
        replace(SET, generation=generation).commit(directory)
    for name in ("SHARDS-11", "SHARDS-0000000000000000001x", "SHARDS-99999999999999999999", "shards-11"):
        (directory.path / name).write_bytes(b"")
    assert find_latest_shard_set(directory) == 10
    assert load_newest_shard_set(directory).generation == 10
    assert not replace(SET, generation=9).is_newest(directory)
    assert not replace(SET, generation=10, set_id=PARENT).is_newest(directory)  # replaced by another one


def test_a_generation_is_never_overwritten(directory):
    SET.commit(directory)
    with pytest.raises(FileExistsError):
        replace(SET, set_id=PARENT).commit(directory)
    assert directory.names() == [SET.name]
    assert load_newest_shard_set(directory) == SET


def test_a_commit_that_fails_leaves_nothing(directory, monkeypatch):
    def refuse(*_):
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="input/output"):
        SET.commit(directory)
    assert directory.names() == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"generation": 0}, "generation"),
        ({"generation": True}, "generation"),
        ({"generation": 2}, "wrong generation"),
        ({"parent_id": b"short"}, "parent_id"),
        ({"routing": "crc32"}, "routing"),
        ({"folders": []}, "0 folders"),
        ({"folders": [{"name": "a"}, {"name": "a"}]}, "one twice"),
        ({"folders": [{"name": "../a"}]}, "unsafe folder name"),
        ({"folders": [{"name": "a/b"}]}, "unsafe folder name"),
        ({"folders": [{"name": "CON"}]}, "unsafe folder name"),
        ({"folders": [{"name": "a", "more": 1}]}, "unknown fields"),
        ({"folders": ["a"]}, "not a map"),
        ({"folders": [{"name": f"a{number}"} for number in range(MAX_SHARDS + 1)]}, f"at most {MAX_SHARDS}"),
        ({"more": 1}, "unknown fields"),
    ],
)
def test_what_the_specification_does_not_allow_is_refused(directory, changed, message):
    write_file(directory, {}, FIELDS | changed, FileKind.SHARDS, SET.name)
    with pytest.raises(CorruptFile, match=message):
        load_newest_shard_set(directory)


def test_a_file_of_another_kind_is_refused(directory):
    write_file(directory, {}, FIELDS, FileKind.MANIFEST, SET.name)
    with pytest.raises(CorruptFile, match="wrong kind"):
        load_newest_shard_set(directory)


def test_every_byte_that_is_changed_is_noticed(directory):
    SET.commit(directory)
    path = directory.path / SET.name
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FormatError):
            load_newest_shard_set(directory)


def test_features_that_a_writer_must_know_forbid_changes(directory):
    SET.commit(directory)
    path = directory.path / SET.name
    path.write_bytes(preamble(FileKind.SHARDS, writer=128, file_id=FILE_ID) + path.read_bytes()[64:])
    found = load_newest_shard_set(directory)
    assert found.folders == SET.folders
    with pytest.raises(FormatTooNew, match="features 0x80"):
        found.check_writable(directory)
    SET.check_writable(directory)


@pytest.mark.parametrize("doc_id", ["", "a", "é", "文" * 100, "\ud800"])
def test_an_id_belongs_to_a_shard_by_its_hash(doc_id):
    value = xxhash.xxh3_64_intdigest(doc_id.encode("utf-8", "surrogatepass"))
    assert [shard_of(doc_id, n) for n in (1, 2, 13)] == [0, value % 2, value % 13]


def test_the_hash_of_an_id_never_changes():
    assert [shard_of(doc_id, 1000) for doc_id in ("a", "b", "document 1")] == [719, 615, 105]
