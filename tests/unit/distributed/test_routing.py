"""A router and replicas of shards in one process: generations that answer, and numbers of calls to shards."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from types import SimpleNamespace

import pytest
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries

from quarry import engine
from quarry.engine import Engine
from quarry.engine.gpu.device import Device
from quarry.engine.index.resources import ViewResources
from quarry.engine.options import OpenOptions
from quarry.formats.errors import ChecksumMismatch, IndexNotFound, ShardNotFound

pytest.importorskip("ray", reason="the extra distributed is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of Ray while it is imported

DOCUMENTS = random_documents(60)
QUERIES = random_queries(5)
OPTIONS = OpenOptions(backend="exact", threads=1)


class Handle:
    """A substitute for the handle of a deployment, which calls its replicas in turn in this process."""

    def __init__(self, copies):
        self.copies = copies
        self.calls = Counter()
        self._turns = itertools.cycle(copies)

    def __getattr__(self, name):
        def remote(*arguments):
            self.calls[arguments[1] if name == "call" else name] += 1
            copy = next(self._turns)
            return SimpleNamespace(result=lambda **_: getattr(copy, name)(*arguments))

        return SimpleNamespace(remote=remote)


@pytest.fixture
def path(tmp_path):
    engine.build(DOCUMENTS, tmp_path / "idx", encoder=ENCODER, shards=2, threads=1)
    return tmp_path / "idx"


@pytest.fixture
def handles(path):
    """Return the handles of two shards with two replicas each."""
    from quarry.distributed.replica import ShardReplica

    return [Handle([ShardReplica(path, number, 2, OPTIONS, 1e9) for _ in range(2)]) for number in range(2)]


def router_of(path, handles):
    from quarry.distributed.routed_index import RoutedIndex

    resources = ViewResources(OPTIONS, Device(None, None), ENCODER)
    return RoutedIndex(path, handles, resources, timeout_s=5, refresh_s=0, pause_s=0)


@pytest.fixture
def routed(path, handles):
    """Return a router that looks for a newer build at every call, with replicas that refresh only on request."""
    index = router_of(path, handles)
    yield index
    index.close()


def commit(path, documents):
    with Engine.open(path, encoder=ENCODER, writable=True, threads=1) as index:
        index.add(documents)
        index.commit()


def test_copies_at_different_generations_are_listed_until_the_next_search(path, routed, handles):
    assert not routed.search("w1").coverage.generations
    commit(path, [{"id": f"new {number}", "text": "moonlight"} for number in range(12)])
    name = handles[0].copies[1].state().value.name  # opens the newest generation
    before = routed.search("moonlight w1", mode="lexical")  # asks both replicas of the shard
    assert dict(before.coverage.generations) == {name: (1, 2)}
    assert not any(hit.id.startswith("new") for hit in before)
    found = [routed.search("moonlight", k=12, mode="lexical") for _ in range(3)]
    assert all(len(hits) == 12 and not hits.coverage.generations for hits in found)
    with Engine.open(path, encoder=ENCODER, backend="exact") as index:
        for query in QUERIES:
            assert columns(routed.search(query)) == columns(index.search(query))


def test_a_listing_whose_generation_is_gone_says_so(path, routed):
    (part, _) = routed.parts(None)
    listed = routed.page(part, None, 0, 100, "ids")
    assert len(listed) == part.n_documents
    for number in range(4):
        commit(path, [{"id": f"new {number} {other}", "text": "moonlight"} for other in range(12)])
        routed.refresh()
        routed.refresh()  # the other replica
        if number == 1:
            assert routed.page(part, None, 0, 100, "ids") == listed
    from quarry.distributed import StaleGeneration

    with pytest.raises(StaleGeneration, match="begin again"):
        routed.page(part, None, 0, 100, "ids")


def test_the_usual_query_asks_each_shard_once_for_candidates_and_those_of_hits_for_texts(routed, handles):
    routed.search("w1 w2", k=60)
    for handle in handles:
        handle.calls.clear()
    assert len(routed.search("w1 w2", k=60)) == 60
    assert [handle.calls for handle in handles] == [Counter(find=1, read=1)] * 2
    for handle in handles:
        handle.calls.clear()
    (hit,) = routed.search("w1 w2", k=1)
    reads = [handle.calls["read"] for handle in handles]
    assert sorted(reads) == [0, 1]
    assert [handle.calls["find"] for handle in handles] == [1, 1]
    owner = handles[reads.index(1)].copies[0]
    generation = owner.state().value.manifest.commit_id
    assert hit.id in owner.call(generation, "list_ids", (None, 0, 100)).value


def test_document_frequencies_are_learned_anew_after_a_commit(path, routed, handles):
    routed.search("w1 w2", mode="lexical")
    commit(path, [{"id": f"new {number}", "text": "w1"} for number in range(12)])
    assert routed.refresh()
    routed.search("w1 w2", mode="lexical")
    for handle in handles:
        handle.calls.clear()
    with Engine.open(path, encoder=ENCODER, backend="exact") as index:
        assert columns(routed.search("w1 w2")) == columns(index.search("w1 w2"))
        assert columns(routed.search("w3 w1")) == columns(index.search("w3 w1"))
    assert [handle.calls["document_frequencies"] for handle in handles] == [1, 1]  # of w3


def test_a_build_with_another_number_of_shards_is_an_error_of_every_call(path, routed, handles):
    from quarry.distributed.replica import ShardReplica

    for n_shards in (1, 3):
        engine.build(DOCUMENTS[:5], path, encoder=ENCODER, shards=n_shards, overwrite=True)
        for _ in range(4):
            for ask in (
                lambda: routed.search("w1"),
                routed.stats,
                lambda: len(routed),
                lambda: routed.parts(None),
            ):
                with pytest.raises(IndexNotFound, match=f"serve it again; expected 2 shards.*found {n_shards}"):
                    ask()
        for handle in handles:
            for copy in handle.copies:
                copy.check()  # it is healthy: Ray should not restart it
        with pytest.raises(IndexNotFound, match="serve it again"):
            ShardReplica(path, 0, 2, OPTIONS)
    engine.build(DOCUMENTS[:7], path, encoder=ENCODER, shards=2, overwrite=True)
    assert len(routed) == 7
    assert len(routed.search("w1", k=60, mode="dense")) == 7


def test_a_folder_of_a_shard_that_disappears(tmp_path, path):
    from quarry.distributed.replica import ShardReplica

    refreshing = [Handle([ShardReplica(path, number, 2, OPTIONS, 0)]) for number in range(2)]
    routed = router_of(path, refreshing)
    before = columns(routed.search("w1"))
    folder = sorted(path.glob("shard-*"))[1]
    folder.rename(tmp_path / "away")
    with pytest.raises(ShardNotFound, match=f"{folder.name}: a shard of the index is missing"):
        routed.search("w1")
    for mode in ("dense", "hybrid"):
        hits = routed.search("w1", k=60, mode=mode, partial=True)
        assert dict(hits.coverage.missing) == {folder.name: "a shard of the index is missing"}
        assert 0 < len(hits) == hits.coverage.n_reached < 60
    (tmp_path / "away").rename(folder)
    assert columns(routed.search("w1")) == before
    routed.close()


def test_a_copy_is_opened_while_the_index_is_built_again(path, monkeypatch):
    """The folders that the build has deleted in between are not reported as missing."""
    from quarry.distributed import replica

    stat, built = os.stat, []

    def build_first(file, *arguments, **options):
        if str(file).startswith(str(path / "shard-")) and not built:
            built.append(file)  # first, because the build looks at it too
            engine.build(DOCUMENTS[:9], path, encoder=ENCODER, shards=2, overwrite=True)
        return stat(file, *arguments, **options)

    monkeypatch.setattr(os, "stat", build_first)
    copies = [replica.ShardReplica(path, number, 2, OPTIONS) for number in range(2)]
    assert built
    assert sum(copy.state().value.size.n_docs for copy in copies) == 9


def test_a_health_check_reads_the_index(path, handles):
    replica = handles[0].copies[0]
    replica.check()
    name = replica.state().value.name
    (segment,) = (path / name).glob("*.seg")
    segment.write_bytes(segment.read_bytes().replace(b"document 00", b"Document 00"))
    from quarry.distributed.replica import ShardReplica

    with pytest.raises(ChecksumMismatch):
        ShardReplica(path, 0, 2, OPTIONS).check()


def test_usage_statistics_are_off_unless_they_are_turned_on(monkeypatch):
    import importlib

    import quarry.distributed

    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    importlib.reload(quarry.distributed)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    importlib.reload(quarry.distributed)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
