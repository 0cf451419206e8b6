"""Ray Serve: the ranking of one index, and what happens when copies of shards end, hang, or find a commit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries

from quarry import engine
from quarry.engine import Engine, InvalidFilter, ShardTimeout

pytest.importorskip("ray", reason="the extra distributed is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are found in /proc"),
]

DOCUMENTS = random_documents(80)
QUERIES = random_queries(6)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "idx"
    engine.build(DOCUMENTS, path, encoder=ENCODER, shards=2, threads=1)
    return path


@pytest.fixture(scope="module")
def served(path, cluster):
    """Two copies of each of two shards."""
    from ray import serve

    from quarry.distributed import serve_index

    yield serve_index(path, encoder=ENCODER, replicas=2, num_cpus=0.1)
    serve.shutdown()


def processes(shard):
    """The processes of the copies of a shard."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"quarry-shard-{shard}".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def wait_until(is_so, seconds=120):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


@contextlib.contextmanager
def load(served):
    """Searches on another thread for as long as the block; yields the answers, or errors, so far."""
    answers, stop = [], threading.Event()

    def search():
        while not stop.is_set():
            for query in QUERIES:
                try:
                    answers.append((query, served.search(query, k=5)))
                except Exception as error:
                    answers.append((query, error))

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


def test_the_ranking_of_one_index(served, path):
    with Engine.open(path, encoder=ENCODER) as index:
        for mode in ("dense", "lexical", "hybrid"):
            options = {"mode": mode, "explain": True, "k": 20}
            for query, together in zip(QUERIES, served.search(QUERIES, **options), strict=True):
                found, wanted = served.search(query, **options), index.search(query, **options)
                assert columns(found) == columns(together) == columns(wanted)
                assert [each.to_dict() for each in found] == [each.to_dict() for each in wanted]
                assert (found.exactness, found.coverage) == (wanted.exactness, wanted.coverage)
            condition = {"number": {"$gte": 3}}
            filtered = served.search(QUERIES[0], mode=mode, filter=condition)
            assert columns(filtered) == columns(index.search(QUERIES[0], mode=mode, filter=condition))
        assert served.count(condition) == index.count(condition)
        ids = ["document 0003", "none", "document 0001"]
        assert served.get(ids) == index.get(ids)
        assert len(served) == len(index)
    with pytest.raises(InvalidFilter):
        served.search("w1", filter={"number": {"$gt": "text"}})


def test_http_is_that_of_one_index(served, path):
    """Answers are those of the same server in front of the index itself."""
    pytest.importorskip("starlette", reason="the extra server is not installed")
    from support.server.running_server import running

    from quarry.server import app

    request = {"query": QUERIES[0], "k": 5, "filter": {"number": {"$gte": 2}}}
    answers = []
    for reader in (None, lambda _: served):
        with running(app({"docs": path}, encoder=ENCODER, threads=1, open_reader=reader)) as server:
            answer = server.search("docs", **request)
            assert answer.status == 200, answer.body
            answers.append(answer.json)
            refused = server.search("docs", query="w1", filter={"number": {"$gt": "text"}})
            assert (refused.status, refused.error["type"]) == (422, "InvalidFilter")
            assert server.ask("GET", "/health").status == 200
    assert answers[0]["hits"]
    for answer in answers:
        answer.pop("took_ms", None)
    assert answers[0] == answers[1]


def test_a_commit_under_load(served, path):
    """Every answer is complete; after a while all copies of all shards answer from the new generation."""
    before = len(served)
    with load(served) as answers, Engine.open(path, encoder=ENCODER, writable=True, threads=1) as index:
        wait_until(lambda: len(answers) > 10)
        index.add([{"id": f"new {number}", "text": "moonlight"} for number in range(6)])
        index.commit()
        wait_until(lambda: len(served) == before + 6)
        wait_until(lambda: not served.search("moonlight").coverage.generations)
    errors = [answer for _, answer in answers if isinstance(answer, Exception)]
    assert not errors
    assert all(answer.coverage.is_complete for _, answer in answers)
    assert {hit.id for hit in served.search("moonlight", k=6)} == {f"new {number}" for number in range(6)}


def test_one_of_two_copies_is_killed_under_load(served):
    """Nothing is lost: every answer is the same as before."""
    wanted = {query: columns(served.search(query, k=5)) for query in QUERIES}
    with load(served) as answers:
        wait_until(lambda: len(answers) > 10)
        killed = processes(0)[0]
        os.kill(killed, signal.SIGKILL)
        n_before = len(answers)
        wait_until(lambda: len(answers) > n_before + 50)
        wait_until(lambda: len(processes(0)) == 2 and killed not in processes(0))
    assert not [answer for _, answer in answers if isinstance(answer, Exception)]
    assert all(answer.coverage.is_complete for _, answer in answers)
    assert all(columns(answer) == wanted[query] for query, answer in answers)


def test_a_shard_that_hangs_meets_its_timeout(served):
    wait_until(lambda: len(processes(1)) == 2)
    stopped = processes(1)
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(ShardTimeout):
            served.search("w1", timeout=0.5)
        found = served.search("w1", timeout=0.5, partial=True)
        assert not found.coverage.is_complete
        assert 0 < found.coverage.n_reached < found.coverage.n_documents
        assert found.exactness == "partial"
        assert len(found) == 10
    finally:
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):  # its health check may have ended it
                os.kill(process, signal.SIGCONT)
    wait_until(lambda: served.search("w1", partial=True, timeout=5).coverage.is_complete)


def test_all_copies_of_a_shard_are_killed(served):
    """An answer without it says so; when it is back, answers are complete again."""
    for process in processes(1):
        os.kill(process, signal.SIGKILL)
    found = served.search("w1", partial=True, timeout=0.5)
    assert found.coverage.is_complete == (found.coverage.n_reached == len(served))
    assert not found.coverage.is_complete
    assert found.exactness == "partial"
    wait_until(lambda: served.search("w1", partial=True, timeout=5).coverage.is_complete)
