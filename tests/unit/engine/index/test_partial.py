"""Shards that fail or are late raise an error, or with `partial` the others answer and the result says so."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from support.indexes.inside import threads_of
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries
from support.indexes.stored import flip_first_bit

from quarry import engine
from quarry.engine import Engine
from quarry.engine.cli.commands import main
from quarry.engine.index.gathering import Gathering, ShardThreads
from quarry.formats.container.directory import Directory
from quarry.formats.errors import (
    ChecksumMismatch,
    CorruptFile,
    FormatError,
    IndexClosed,
    IndexNotFound,
    InvalidFilter,
    InvalidQuery,
    ShardNotFound,
    ShardTimeout,
)
from quarry.formats.shard_set import load_newest_shard_set, shard_of

DOCUMENTS = random_documents(200)
QUERIES = random_queries(6)
BROKEN = 2


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "idx"
    engine.build(DOCUMENTS, path, encoder=ENCODER, shards=4)
    return path


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "idx")


def damage(folder, section):
    """Change a byte of a section in a shard's only segment; return the name of the shard's folder."""
    name = load_newest_shard_set(Directory(folder)).folders[BROKEN]
    (path,) = (folder / name).glob("*.seg")
    flip_first_bit(path, section)
    return name


def opened(path, **options):
    return Engine.open(path, encoder=ENCODER, **({"backend": "exact", "threads": 4} | options))


def others():
    """Return the ids of the documents of all other shards."""
    return {document["id"] for document in DOCUMENTS if shard_of(document["id"], 4) != BROKEN}


@pytest.mark.parametrize(
    ("section", "mode"),
    [
        ("centroids", "dense"),
        ("centroids", "hybrid"),
        ("posting_offsets", "lexical"),
        ("doc_lengths", "lexical"),
        ("postings", "hybrid"),
        ("ids", "lexical"),
    ],
)
def test_a_shard_that_fails(folder, section, mode):
    name = damage(folder, section)
    with opened(folder) as index:
        with pytest.raises(ChecksumMismatch, match=name) as caught:
            index.search(QUERIES, mode=mode)
        assert f"This is an error of the shard {name}." in caught.value.__notes__
        for hits in index.search(QUERIES, k=200, mode=mode, partial=True):
            assert hits.exactness == "partial"
            assert {hit.id for hit in hits} <= others()
            assert len(hits) == len(others()) or mode == "lexical"
            coverage = hits.coverage
            assert (coverage.n_shards, coverage.n_documents, coverage.n_reached) == (4, 200, len(others()))
            assert list(coverage.missing) == [name]
            assert section in coverage.missing[name]
            assert not coverage.is_complete
            assert json.loads(json.dumps(coverage.to_dict()))["n_reached"] == len(others())


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_the_ranking_of_a_partial_answer_is_that_of_the_shards_that_answered(folder, tmp_path, mode):
    """The ranking uses the statistics of the shards that answered, unless the failure shows only in texts."""
    damage(folder, "doc_lengths")
    kept = [document for document in DOCUMENTS if document["id"] in others()]
    engine.build(kept, tmp_path / "one", encoder=ENCODER)
    with opened(tmp_path / "one") as one, opened(folder) as index:
        found = index.search(QUERIES, mode=mode, partial=True)
        if mode == "dense":  # reads no lengths
            assert all(hits.coverage.is_complete for hits in found)
        else:
            assert list(map(columns, found)) == list(map(columns, one.search(QUERIES, mode=mode)))


def test_a_shard_whose_texts_cannot_be_read_is_left_out_of_the_hits(folder):
    damage(folder, "document_offsets")
    with opened(folder) as index:
        with pytest.raises(FormatError):
            index.search(QUERIES, mode="dense")
        for hits in index.search(QUERIES, k=30, mode="dense", partial=True):
            assert len(hits) == 30
            assert {hit.id for hit in hits} <= others()
            assert hits.exactness == "partial"
            assert all(hit.text for hit in hits)


def test_reranked_hits_of_a_partial_answer_are_labeled_too(folder):
    class Reranker:
        name = "length"

        def scores(self, query, texts):
            return np.array([len(text) for text in texts], np.float32)

    damage(folder, "centroids")
    with opened(folder, reranker=Reranker()) as index:
        hits = index.search(QUERIES[0], k=3, rerank=9, partial=True)
        assert (len(hits), hits.exactness, hits.coverage.n_reached) == (3, "partial", len(others()))


def test_a_partial_answer_is_complete_if_every_shard_answers(sound):
    with opened(sound) as index:
        for hits, alike in zip(
            index.search(QUERIES, partial=True, timeout=60), index.search(QUERIES), strict=True
        ):
            assert columns(hits) == columns(alike)
            assert hits.coverage == alike.coverage
            assert hits.coverage.is_complete
            assert hits.exactness == alike.exactness == "exact"


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_shard_that_is_late(sound, mode):
    """A late shard does not use up the time of the others, which are asked after it was found missing."""
    with opened(sound) as index:
        name = load_newest_shard_set(Directory(sound)).folders[BROKEN]
        hangs = threading.Event()
        threads = threads_of(index)
        busy = [threads.submit(BROKEN, lambda _: hangs.wait(60)) for _ in range(4)]
        try:
            with pytest.raises(ShardTimeout, match=r"did not answer in time.*within 0\.05 s"):
                index.search(QUERIES[0], mode=mode, timeout=0.05)
            hits = index.search(QUERIES[0], k=200, mode=mode, timeout=3, partial=True)
            assert hits.exactness == "partial"
            assert list(hits.coverage.missing) == [name]
            assert {hit.id for hit in hits} == others()
        finally:
            hangs.set()
        assert all(future.result(60) for future in busy)
        assert index.search(QUERIES[0], mode=mode, timeout=60).exactness == "exact"


def test_errors_of_the_caller_are_raised_in_any_case(sound):
    with opened(sound) as index:
        with pytest.raises(InvalidFilter):
            index.search("w1", filter={"number": "four"}, partial=True)
        with pytest.raises(InvalidQuery):
            index.search_vectors([[float("inf")] * 32], partial=True)


def test_an_answer_of_no_shard_is_an_error(folder):
    for path in folder.glob("shard-*/*.seg"):
        flip_first_bit(path, "centroids")
    with opened(folder) as index, pytest.raises(ChecksumMismatch):
        index.search("w1", mode="dense", partial=True)


def test_the_shard_of_the_document_of_a_search_is_late(sound):
    """A late shard of the example document is an error also with `partial`, because there is no query."""
    doc_id = next(document["id"] for document in DOCUMENTS if shard_of(document["id"], 4) == BROKEN)
    with opened(sound) as index:
        threads, hangs = threads_of(index), threading.Event()
        busy = [threads.submit(BROKEN, lambda _: hangs.wait(60)) for _ in range(4)]
        try:
            for is_partial in (False, True):
                with pytest.raises(ShardTimeout, match=r"within 0\.05 s"):
                    index.search(like=doc_id, timeout=0.05, partial=is_partial)
        finally:
            hangs.set()
        for future in busy:
            future.result()
        assert len(index.search(like=doc_id, timeout=60)) == 10
        with pytest.raises(InvalidQuery, match="nobody"):
            index.search(like="nobody", timeout=60)


def test_a_missing_shard_is_an_error_when_the_index_is_opened(folder):
    name = load_newest_shard_set(Directory(folder)).folders[BROKEN]
    shutil.rmtree(folder / name)
    with pytest.raises(ShardNotFound, match=f"{name}: a shard of the index is missing"):
        opened(folder)


def test_a_shard_that_disappears_while_the_index_is_open(folder, tmp_path):
    name = load_newest_shard_set(Directory(folder)).folders[BROKEN]
    with opened(folder, refresh=True) as index:
        before = columns(index.search(QUERIES[0]))
        (folder / name).rename(tmp_path / "away")
        for _ in range(2):
            with pytest.raises(ShardNotFound, match=f"{name}: a shard of the index is missing") as caught:
                index.search(QUERIES[0])
            assert caught.value.__notes__ == [f"This is an error of the shard {name}."]
            with pytest.raises(ShardNotFound, match=name):
                index.refresh()
            for mode in ("dense", "hybrid"):
                hits = index.search(QUERIES[0], k=200, mode=mode, partial=True)
                assert {hit.id for hit in hits} == others()
                assert dict(hits.coverage.missing) == {name: "a shard of the index is missing"}
                assert (hits.coverage.n_documents, hits.coverage.n_reached) == (200, len(others()))
        with pytest.raises(ShardNotFound, match=name):
            opened(folder)
        (tmp_path / "away").rename(folder / name)
        assert columns(index.search(QUERIES[0])) == before
        assert not index.refresh()


def test_an_index_is_built_again_while_its_shards_are_refreshed(folder, monkeypatch):
    """Folders of shards that a build has replaced are not reported as missing."""
    real, built = os.open, []

    def open_and_build(name, *arguments, **options):
        answer = real(name, *arguments, **options)
        if not built and Path(name).name.startswith("SHARDS-"):
            monkeypatch.setattr(os, "open", real)
            built.append(engine.build(DOCUMENTS[:50], folder, encoder=ENCODER, shards=2, overwrite=True))
        return answer

    with opened(folder, refresh=True) as index:
        monkeypatch.setattr(os, "open", open_and_build)
        hits = index.search(QUERIES[0], k=200, mode="dense")
        assert built
        assert (len(hits), hits.coverage.n_shards, hits.coverage.n_documents) == (50, 2, 50)


@pytest.mark.parametrize("shards", [None, 3])
def test_an_index_is_replaced_by_one_of_the_other_kind(tmp_path, shards):
    """An open index follows the index at its path, sharded or not, and raises IndexNotFound if there is none."""
    path = tmp_path / "idx"
    engine.build(DOCUMENTS[:30], path, encoder=ENCODER, shards=shards)
    engine.build(DOCUMENTS[30:100], tmp_path / "other", encoder=ENCODER, shards=None if shards else 3)
    with opened(path, refresh=True) as searched, opened(path) as read, opened(tmp_path / "other") as other:
        shutil.rmtree(path)
        with pytest.raises(IndexNotFound):
            searched.search("w1")
        with pytest.raises(IndexNotFound):
            read.refresh()
        (tmp_path / "other").rename(path)
        assert len(read) == 30
        assert read.refresh()
        assert not read.refresh()
        for query in QUERIES:
            assert columns(searched.search(query)) == columns(read.search(query)) == columns(other.search(query))
        assert len(read) == len(searched) == 70
    with pytest.raises(IndexClosed):
        read.refresh()


def test_shards_of_different_settings_are_refused(folder, tmp_path):
    name = load_newest_shard_set(Directory(folder)).folders[BROKEN]
    shutil.rmtree(folder / name)
    engine.build(DOCUMENTS[:9], folder / name, encoder=ENCODER, language="german")
    with pytest.raises(CorruptFile, match="other settings"):
        opened(folder)


def test_a_gathering_does_not_ask_a_missing_shard_again():
    def answer(shard):
        called.append(shard)
        if shard == 1:
            raise CorruptFile("broken")
        return -shard

    threads, called = ShardThreads(3, 1), []
    gathering = Gathering(threads, ["a", "b", "c"], allow_partial=True)
    assert gathering.run(answer) == {0: 0, 2: -2}
    assert gathering.missing == {1: "broken"}
    assert gathering.run(answer, [1, 2]) == {2: -2}
    assert sorted(called) == [0, 1, 2, 2]
    threads.close()


def test_the_command_line_says_what_is_missing(folder, capsys):
    name = damage(folder, "postings")
    words = ["search", str(folder), "w1", "--mode", "lexical"]
    assert main(words) == 1
    assert name in capsys.readouterr().err
    assert main([*words, "--partial", "--timeout", "60"]) == 0
    printed = capsys.readouterr()
    assert f"warning: {len(others())} of 200 documents were searched; missing: {name}" in printed.err
    assert "document" in printed.out
    assert main([*words, "--partial", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["exactness"], list(answer["coverage"]["missing"])) == ("partial", [name])
