"""Builds of shards, and changes to them."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
from support.indexes.inside import writer_of
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries

from quarry import engine
from quarry.engine import Engine
from quarry.engine.cli.commands import main
from quarry.engine.thresholds import MergeLimits, Thresholds
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.errors import (
    CommitFailed,
    FormatError,
    IndexClosed,
    IndexExists,
    IndexLocked,
    InvalidDocument,
    InvalidSetting,
    ReadOnlyIndex,
)
from quarry.formats.shard_set import load_newest_shard_set, shard_directory, shard_of
from quarry.formats.snapshot import Snapshot

DOCUMENTS = random_documents(120)
QUERIES = random_queries(5)


def opened(path, **options):
    return Engine.open(path, encoder=ENCODER, **({"backend": "exact", "threads": 2} | options))


def built(path, n_shards=3, documents=DOCUMENTS, **options):
    engine.build(documents, path, encoder=ENCODER, shards=n_shards, **options)
    return path


def found(index):
    return [columns(hits) for hits in index.search(QUERIES)]


def test_every_document_is_in_the_shard_of_its_id(tmp_path):
    path = built(tmp_path / "idx", 4)
    shard_set = load_newest_shard_set(Directory(path))
    for number, name in enumerate(shard_set.folders):
        expected = [document["id"] for document in DOCUMENTS if shard_of(document["id"], 4) == number]
        with opened(path / name) as shard:  # an ordinary index
            assert len(shard) == len(expected) == len(shard.get(expected))


def test_the_report_of_a_build(tmp_path):
    alone = engine.build(DOCUMENTS + DOCUMENTS[:5], tmp_path / "one", encoder=ENCODER)
    together = engine.build(DOCUMENTS + DOCUMENTS[:5], tmp_path / "idx", encoder=ENCODER, shards=3)
    for name in ("n_documents", "n_replaced", "n_skipped", "n_centroids", "n_tokens"):
        assert getattr(together, name) == getattr(alone, name)
    with opened(tmp_path / "idx") as index:
        stats = index.stats()
        assert index.verify().n_bytes == together.size_bytes
        assert (stats["n_documents"], stats["n_shards"]) == (120, 3)
        assert stats["n_centroids"] == together.n_centroids
        assert sum(shard["n_documents"] for shard in stats["shards"].values()) == 120
        assert sum(stats["bytes"].values()) == stats["size_bytes"]


def test_more_shards_than_documents(tmp_path):
    path = built(tmp_path / "idx", 13, DOCUMENTS[:3])
    engine.build(DOCUMENTS[:3], tmp_path / "one", encoder=ENCODER)
    with opened(path) as index, opened(tmp_path / "one") as one:
        assert found(index) == found(one)
        assert [hits.exactness for hits in index.search(QUERIES)] == ["exact"] * len(QUERIES)
    empty = built(tmp_path / "empty", 2, [])
    with opened(empty) as index:
        assert (len(index), index.search("w1"), index.search("w1", mode="lexical")) == (0, [], [])
        assert index.count({"number": 1}) == 0


def test_changes_are_visible_after_a_commit(tmp_path):
    path = built(tmp_path / "idx")
    with opened(path, writable=True) as index, opened(path) as reader, opened(path, refresh=True) as follower:
        before = found(reader)
        new = [{"id": f"new {number}", "text": f"w{number} brandnew"} for number in range(9)]
        assert index.add(new) == 9
        assert index.delete(["document 0001", "document 0002", "no such", "new 3"]) == 3
        assert (len(index), index.count(), index.count(None), found(index)) == (120, 120, 120, before)
        generation = index.commit()
        assert generation > 3
        assert index.commit() == generation  # nothing to commit
        assert (len(index), len(reader), len(follower.search("brandnew", mode="lexical"))) == (126, 120, 8)
        assert [hit.id for hit in index.search("brandnew w3", k=1, mode="lexical")] != []
        assert reader.refresh()
        assert not reader.refresh()
        assert len(reader) == 126
        index.add(["discarded"])
        index.rollback()
        index.commit()
        assert len(index) == 126


def test_merging_changes_no_score(tmp_path):
    path = built(tmp_path / "idx")
    with opened(path, writable=True) as index:
        for low in range(0, 30, 10):
            index.add(random_documents(10 + low, seed=low)[low:])
            index.delete(f"document {100 + low:04d}")
            index.commit()
        before = found(index)
        assert index.stats()["n_segments"] > 3
        index.merge()
        assert (index.stats()["n_segments"], index.stats()["n_deleted"]) == (3, 0)
        assert found(index) == before
        assert index.verify().n_documents == len(index)


def test_graphs_are_written_for_the_segments_of_all_shards(tmp_path):
    thresholds = Thresholds(graph_rows=1)
    path = built(tmp_path / "idx")
    with opened(path, writable=True) as index:
        assert index.optimize() == 0  # fewer centroids than the default threshold
    with opened(path, writable=True, thresholds=thresholds) as index:
        before = found(index)
        assert index.optimize() == 3
        assert index.optimize() == 0
        assert found(index) == before
    assert len(list(path.glob("*/*.hnsw"))) == 3
    with opened(path, backend="hnsw", thresholds=thresholds) as index:
        assert len(index.search("w1", k=5, mode="dense")) == 5
        assert index.verify().n_documents == 120


def test_only_one_writer(tmp_path):
    path = built(tmp_path / "idx")
    name = load_newest_shard_set(Directory(path)).folders[1]
    with opened(path, writable=True) as index:
        for folder in (path, path / name):
            with pytest.raises(IndexLocked):
                opened(folder, writable=True)
        with pytest.raises(IndexLocked):
            built(path, overwrite=True)
        index.add(["still open"])
        index.commit()
    with opened(path / name, writable=True), pytest.raises(IndexLocked):
        opened(path, writable=True)
    with opened(path) as index, pytest.raises(ReadOnlyIndex):
        index.add(["no"])
    with pytest.raises(IndexClosed):
        index.search("w1")


def test_an_invalid_document_loses_none_before_it(tmp_path):
    path = built(tmp_path / "idx")
    with opened(path, writable=True) as index:
        with pytest.raises(InvalidDocument, match="bad"):
            index.add([{"id": "good", "text": "w1"}, {"id": "bad", "text": "..."}, {"id": "late", "text": "w1"}])
        index.commit()
        assert ["good" in index, "bad" in index, "late" in index] == [True, False, False]


def test_another_number_of_shards_is_another_generation(tmp_path):
    path = built(tmp_path / "idx", 3)
    old = set(load_newest_shard_set(Directory(path)).folders)
    with opened(path) as reader:
        before = found(reader)
        with pytest.raises(IndexExists, match="generation 1"):
            built(path, 5)
        built(path, 5, DOCUMENTS[:60], overwrite=True)
        assert found(reader) == before
        assert reader.refresh()
        assert len(reader) == 60
        assert len(reader.search("w1", k=99)) == 60
    shard_set = load_newest_shard_set(Directory(path))
    assert (shard_set.generation, len(shard_set.folders)) == (2, 5)
    if sys.platform == "win32":  # which keeps files that are open; the next writer deletes them
        opened(path, writable=True).close()
    names = {each.name for each in path.iterdir()}
    assert names == {shard_set.name, "write.lock", *shard_set.folders}
    assert not old & names


def test_a_build_that_fails_leaves_what_was_there(tmp_path):
    bad = [*DOCUMENTS, {"id": "bad", "text": "..."}]
    with pytest.raises(InvalidDocument) as caught:
        built(tmp_path / "new", 3, bad)
    assert "there is no index" in caught.value.__notes__[0]
    assert not (tmp_path / "new").exists()
    path = built(tmp_path / "idx")
    before = {each.name for each in path.iterdir()}
    with pytest.raises(InvalidDocument) as caught:
        built(path, 2, bad, overwrite=True)
    assert "generation 1" in caught.value.__notes__[0]
    assert {each.name for each in path.iterdir()} == before
    with opened(path) as index:
        assert index.verify().n_documents == 120


def test_orphan_folders_are_deleted_by_the_next_writer(tmp_path):
    path = built(tmp_path / "idx")
    orphan, mine = path / f"shard-{'0' * 32}-0001", path / "shard-notes"
    for folder in (orphan, mine):
        folder.mkdir()
        (folder / "file").write_text("something")
    (path / f"shards-{'0' * 32}.tmp").write_text("incomplete")
    with opened(path) as index:
        assert orphan.exists()
        assert len(index) == 120
    opened(path, writable=True).close()
    assert not orphan.exists()
    assert (mine / "file").read_text() == "something"
    assert not list(path.glob("*.tmp"))


def test_indexes_with_and_without_shards_do_not_replace_each_other(tmp_path):
    path = built(tmp_path / "idx")
    with pytest.raises(IndexExists, match="has shards"):
        engine.build(DOCUMENTS, path, encoder=ENCODER, overwrite=True)
    engine.build(DOCUMENTS, tmp_path / "one", encoder=ENCODER)
    with pytest.raises(IndexExists, match="has no shards"):
        built(tmp_path / "one", overwrite=True)
    for folder in (path, tmp_path / "one"):
        with opened(folder) as index:
            assert index.verify().n_documents == 120


@pytest.mark.parametrize("n_shards", [0, -1, 4097, True, 2.0, "2"])
def test_invalid_numbers_of_shards(tmp_path, n_shards):
    with pytest.raises(InvalidSetting, match="shards"):
        built(tmp_path / "idx", n_shards)
    assert not (tmp_path / "idx").exists()


def test_verification_finds_all_damage(tmp_path, capsys):
    path = built(tmp_path / "idx", 4)
    folders = load_newest_shard_set(Directory(path)).folders
    for name in folders[:2]:
        (segment,) = (path / name).glob("*.seg")
        content = bytearray(segment.read_bytes())
        content[100] ^= 1
        segment.write_bytes(content)
    shutil.rmtree(path / folders[2])
    shutil.copytree(path / folders[3], path / folders[2])  # documents in the wrong shard
    assert main(["verify", str(path)]) == 1
    message = capsys.readouterr().err
    assert all(part in message for part in ("3 errors", folders[0], folders[1], "wrong shard"))


def test_the_command_line(tmp_path, capsys):
    source = tmp_path / "docs.jsonl"
    source.write_text("\n".join(json.dumps({"id": str(number), "text": f"w{number}"}) for number in range(9)))
    path = str(tmp_path / "idx")
    assert main(["build", str(source), path, "--shards", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_documents"] == 9
    for words in (["info", path], ["merge", path], ["verify", path]):
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
    assert main(["delete", path, "4"]) == 0
    assert main(["info", path]) == 0
    assert "n_documents                  8" in capsys.readouterr().out
    assert main(["search", path, "w5", "--mode", "lexical", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [hit["id"] for hit in answer["hits"]] == ["5"]
    assert answer["coverage"] == {"n_shards": 3, "n_documents": 8, "n_reached": 8, "missing": {}}


def test_memory_is_divided_among_the_shards(tmp_path):
    path = built(tmp_path / "idx")
    with opened(path, memory="30MB") as index:
        found(index)
        memory = index.stats()["memory"]
        assert 0 < memory["limit_bytes"] <= 30_000_000
        assert sum(memory["resident_bytes"].values()) < 30_000_000
    with pytest.raises(InvalidSetting, match="memory"):
        opened(path, memory=300)


def test_a_damaged_shard_set_is_an_error(tmp_path):
    path = built(tmp_path / "idx")
    (path / load_newest_shard_set(Directory(path)).name).write_bytes(b"")
    with pytest.raises(FormatError):
        opened(path)


def test_synchronization_that_stopped_between_two_shards(tmp_path, capsys):
    """If only some shards were committed, the next run adds the rest, for each message of a mailbox."""
    texts = tmp_path / "texts"
    texts.mkdir()

    def write(word, n_messages):
        for number in range(9):
            (texts / f"{number}.txt").write_text(f"{word} w{number}")
        (texts / "mail.mbox").write_text(
            "".join(f"From x\nSubject: {word}\n\nw{number}\n\n" for number in range(n_messages))
        )

    def found(path):
        with opened(path) as index:
            return {hit.id: (hit.title, hit.text) for hit in index.search("w1", k=100, mode="dense")}

    write("w1", 6)
    path = built(tmp_path / "idx", documents=[])
    with opened(path, writable=True) as index:
        assert len(index.sync(texts).added) == 10
    before = found(path)
    write("w2", 9)
    whole = built(tmp_path / "whole", documents=[])
    with opened(whole, writable=True) as index:
        index.sync(texts)
    after = found(whole)
    assert len(before) == 15
    assert len(after) == 18
    n_shards = len(load_newest_shard_set(Directory(path)).folders)
    for n_committed in range(n_shards):
        torn = tmp_path / f"torn{n_committed}"
        shutil.copytree(path, torn)
        with opened(torn, writable=True) as index:
            broken = writer_of(index).partitions[n_committed]

            def fail():
                raise CommitFailed("the disk is full")

            broken.commit = fail
            with pytest.raises(CommitFailed):
                index.sync(texts)
        assert found(torn) not in (before, after) or n_committed == 0
        assert main(["sync", str(texts), str(torn)]) == 1  # the bundled encoder is another one
        capsys.readouterr()
        with opened(torn, writable=True) as index:
            report = index.sync(texts)
            assert not report.failed
            assert found(torn) == after
            again = index.sync(texts)
            assert (again.added, again.changed, again.removed, again.n_unchanged) == ((), (), (), 10)


def test_thresholds_reach_the_writers_of_all_shards(tmp_path):
    """Every shard uses the given thresholds for inverted lists and merges."""
    thresholds = Thresholds(
        list_rows=1, nlist=3, merging=MergeLimits(width=2), writing=WriterLimits(section_bytes=1000)
    )
    path = built(tmp_path / "idx", thresholds=thresholds)
    with opened(path, backend="cpu_faiss", thresholds=thresholds, writable=True) as index:
        index.add([{"id": f"new {number}", "text": "w1 w2"} for number in range(20)])
        index.commit()
        assert len(index.search("w1 w2", k=30, filter={"id": {"$gte": "new"}})) == 20
    with opened(path) as index:  # closing waits for merges
        assert index.stats()["n_segments"] == 3
    for name in load_newest_shard_set(Directory(path)).folders:
        snapshot = Snapshot(Directory(path / name))
        assert [segment.quantizer.nlist for segment in snapshot.segments] == [3]
        snapshot.close()
    limits = shard_directory(Directory(path, limits=thresholds.writing), name, 3).limits
    assert limits == WriterLimits(section_bytes=1000, posting_bytes=(64 << 20) // 3, sample_bytes=(4 << 20) // 3)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
def test_a_rollback_of_the_other_shards_if_one_is_missing(tmp_path):
    path = built(tmp_path / "idx")
    missing = sorted(path.glob("shard-*"))[0]
    with opened(path, writable=True) as index:
        index.add(random_documents(30, seed=1))
        missing.rename(tmp_path / "away")
        with pytest.raises(IndexLocked, match=missing.name):
            index.rollback()
        (tmp_path / "away").rename(missing)
        writers = writer_of(index).partitions
        assert [writer.has_changes() for writer in writers] == [True, False, False]
        index.rollback()
        assert not any(writer.has_changes() for writer in writers)
