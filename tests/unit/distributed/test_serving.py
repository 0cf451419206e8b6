"""Ray Serve has the ranking of one index, also when replicas of shards end, hang, or find a commit."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from support.indexes.parity import ENCODER, QUERIES, LengthReranker, change, questions, varied_documents
from support.indexes.sharded import columns
from support.processes import until

from quarry import engine
from quarry.distributed.serve_command import open_served
from quarry.engine import Engine, IndexNotFound, InvalidFilter, InvalidQuery, InvalidSetting, ShardTimeout
from quarry.engine.cli.commands import main
from quarry.formats.errors import BackendUnavailable, EncoderMismatch

pytest.importorskip("ray", reason="the extra distributed is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc"),
]

NAME = "quarry-docs"  # as named by `quarry serve docs=...`


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "idx"
    engine.build(varied_documents(80), path, encoder=ENCODER, shards=2, threads=1, metric="l2")
    with Engine.open(path, encoder=ENCODER, writable=True, threads=1) as index:
        change(index)
    return path


@pytest.fixture(scope="module")
def served(path, cluster):
    """Serve two replicas of each of two shards."""
    from ray import serve

    from quarry.distributed import serve_index

    yield serve_index(path, name=NAME, encoder=ENCODER, replicas=2, num_cpus=0.1, reranker=LengthReranker())
    serve.shutdown()


def processes(shard):
    """Return the processes of a shard's replicas."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"{NAME}-shard-{shard}".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def wait_until(condition):
    until(condition, 120, 0.1)


@contextlib.contextmanager
def load(served):
    """Search on another thread during the block; yields the list of answers and errors so far."""
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


def test_answers_are_those_of_the_index_in_this_process(served, path):
    with Engine.open(path, encoder=ENCODER, reranker=LengthReranker()) as index:
        for name, ask in questions().items():
            assert ask(served) == ask(index), name
        for query in QUERIES:
            found, wanted = served.search(query, rerank=20), index.search(query, rerank=20)
            assert columns(found) == columns(wanted)
            assert (found.exactness, found.coverage) == (wanted.exactness, wanted.coverage)
        assert ["given 02" in served, "none" in served] == [True, False]
        assert served.folder() == path
        stats, wanted = served.stats(), index.stats()
        assert stats["shards"] == wanted["shards"]
        assert stats.keys() == wanted.keys()
    with pytest.raises(InvalidFilter):
        served.search("w1", filter={"number": {"$gt": "text"}})
    with pytest.raises(InvalidFilter):
        served.documents(filter={"number": {"$gt": "text"}})
    with pytest.raises(InvalidQuery, match="nobody"):
        served.search(like="nobody")
    with pytest.raises(InvalidQuery, match="either queries or like"):
        served.search("w1", like="given 02")


def test_documents_are_listed_in_pages(served, path, monkeypatch):
    monkeypatch.setattr(served, "page", {"documents": 7, "ids": 9})
    condition = {"number": {"$gte": 2}}
    with Engine.open(path, encoder=ENCODER) as index:
        for options in ({}, {"filter": condition}, {"offset": 30, "limit": 25}, {"offset": 1000}, {"limit": 0}):
            assert list(served.ids(**options)) == list(index.ids(**options))
            assert list(served.documents(**options)) == list(index.documents(**options))
        assert list(served) == list(index)
        for options in ({}, {"filter": condition, "offset": 3, "limit": 9}, {"offset": 1000}, {"limit": 0}):
            found = served.documents(sort="-number", **options)
            assert [each.id for each in found] == [each.id for each in index.documents(sort="-number", **options)]
    for options in ({"offset": -1}, {"limit": "2"}):
        with pytest.raises(InvalidSetting):
            served.ids(**options)


def test_what_cannot_be_served(served, path, tmp_path):
    from quarry.distributed import connect_index, serve_index

    engine.build(["no shards"], tmp_path / "one", encoder=ENCODER)
    for folder in (tmp_path / "none", tmp_path / "one"):
        with pytest.raises(IndexNotFound):
            serve_index(folder)
    with pytest.raises(EncoderMismatch):
        serve_index(path, encoder=type(ENCODER)(dim=16))
    for options in ({"replicas": 0}, {"max_ongoing_requests": True}, {"timeout_s": 0}, {"timeout_s": "1"}):
        with pytest.raises(InvalidSetting, match=next(iter(options))):
            serve_index(path, **options)
    with pytest.raises(IndexNotFound, match="'nothing'"):
        connect_index("nothing")
    with pytest.raises(BackendUnavailable, match="expected 300 processors"):
        serve_index(path, name="large", encoder=ENCODER, num_cpus=100, start_timeout_s=1)
    with pytest.raises(IndexNotFound):
        connect_index("large")


def requests():
    """Yield requests to a server, as method, path and body."""
    options = {"k": 5, "filter": {"number": {"$gte": 2}}, "mode": "lexical"}
    yield "POST", "search", {"query": QUERIES[1], "explain": True, **options}
    yield "POST", "search", {"query": "w1", "offset": 3, "min_relevance": 0.2, **options}
    yield "POST", "search", {"query": "w1", "filter": {"number": {"$gt": "text"}}}
    yield "POST", "search/batch", {"queries": QUERIES, **options}
    yield "POST", "list", {"limit": 5, "offset": 30, "filter": {"number": {"$gte": 2}}}
    yield "POST", "facets", {"fields": ["number", "tags"], "query": QUERIES[1]}
    yield "GET", "documents?id=given%2002&id=none", None
    yield "GET", "documents/column%2003", None
    yield "GET", "documents/none", None


def answers(server, index):
    """Return a server's answers to `requests`, and the names of its statistics."""
    found = []
    for method, path, body in requests():
        answer = server.ask(
            method,
            f"/v1/indexes/{index}/{path}",
            None if body is None else json.dumps(body),
            content_type="application/json",
        )
        found.append((path, answer.status, answer.json))
    statistics = server.ask("GET", f"/v1/indexes/{index}").json["statistics"]
    return [*found, (statistics.keys(), statistics["shards"])]


def test_the_command_line_serves_what_is_running_and_what_is_not(served, path, tmp_path):
    """The command uses a running application, or starts one and ends it with itself."""
    pytest.importorskip("starlette", reason="the extra server is not installed")
    import ray
    from support.server.running_server import running, running_command

    from quarry.distributed.deployments import is_serving
    from quarry.server import app

    engine.build(varied_documents(20), tmp_path / "copy", shards=1, threads=1)  # with an encoder that comes along
    wanted = {}
    for name, folder, encoder in (("docs", path, ENCODER), ("copy", tmp_path / "copy", None)):
        with running(app({name: folder}, encoder=encoder, threads=1)) as server:
            wanted[name] = answers(server, name)
    statuses = [status for _, status, _ in wanted["docs"][:-1]]
    assert statuses == [200, 200, 422, 200, 200, 200, 200, 200, 404]
    words = (f"docs={path}", f"copy={tmp_path / 'copy'}", "--ray", ray.get_runtime_context().gcs_address)
    with running_command(*words, "--replica-cpus", "0.1") as (process, server, names):
        assert names == "docs, copy"
        assert is_serving("quarry-copy")
        for name in ("docs", "copy"):
            for ours, theirs in zip(answers(server, name), wanted[name], strict=True):
                assert ours == theirs
        assert server.ask("GET", "/health").status == 200
        assert 'quarry_index_documents{index="copy"} 20' in server.ask("GET", "/metrics").body.decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert is_serving(NAME)
    assert not is_serving("quarry-copy")
    assert len(served.search(QUERIES[0])) == 10


def test_an_application_of_another_index_is_not_taken_for_this_one(served, tmp_path):
    with contextlib.ExitStack() as stack, pytest.raises(InvalidSetting, match="serves another index"):
        open_served(argparse.Namespace(), NAME, tmp_path, stack)


def test_the_command_line_without_a_cluster(path, tmp_path, capsys):
    engine.build(["no shards"], tmp_path / "one", encoder=ENCODER)
    assert main(["serve", str(tmp_path / "one"), "--ray", "local"]) == 1
    assert "no sharded index" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = "{}:{}".format(*closed.getsockname())
    assert main(["serve", str(path), "--ray", address]) == 1
    assert (
        f"there is no Ray cluster; expected local, or the address of one; found {address}"
        in capsys.readouterr().err
    )


def test_a_commit_under_load(served, path, monkeypatch):
    """Every answer during a commit is complete, and after a while all replicas answer from the new generation."""
    monkeypatch.setattr(served, "page", {"ids": 4})
    before, listed = len(served), list(served.ids())
    with load(served) as answers, Engine.open(path, encoder=ENCODER, writable=True, threads=1) as index:
        wait_until(lambda: len(answers) > 10)
        ids = served.ids()
        first = [next(ids) for _ in range(3)]
        index.add([{"id": f"new {number}", "text": "moonlight"} for number in range(6)])
        index.commit()
        wait_until(lambda: len(served) == before + 6)
        wait_until(lambda: not served.search("moonlight").coverage.generations)
        assert [*first, *ids] == listed  # of the previous generation
    errors = [answer for _, answer in answers if isinstance(answer, Exception)]
    assert not errors
    assert all(answer.coverage.is_complete for _, answer in answers)
    assert {hit.id for hit in served.search("moonlight", k=6)} == {f"new {number}" for number in range(6)}


def test_one_of_two_copies_is_killed_under_load(served):
    """All answers are complete and the same as before."""
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
        found = served.search("w1", timeout=2, partial=True)
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
    """Answers without the shard are marked as partial, and complete again when the shard is back."""
    answers = []

    def is_partial():
        """Kill them, and return whether the other shard answered in time, which it may not on a busy machine."""
        for process in processes(1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ShardTimeout):
            answers.append(served.search("w1", partial=True, timeout=0.5))
        return answers and not answers[-1].coverage.is_complete

    wait_until(is_partial)
    with pytest.raises(ShardTimeout):
        served.search("w2", timeout=0.2)
    assert answers[-1].coverage.n_reached < len(served)
    assert answers[-1].exactness == "partial"
    wait_until(lambda: served.search("w1", partial=True, timeout=5).coverage.is_complete)


def test_an_index_that_is_built_again(served, path):
    """A new index with as many shards is followed despite lower generations; otherwise every call fails."""

    def build(n_shards, word):
        documents = [{"id": f"{number}", "text": f"{word} w{number}"} for number in range(40)]
        options = {"encoder": ENCODER, "threads": 1, "metric": "l2", "overwrite": True}
        engine.build(documents, path, shards=n_shards, **options)

    def finds(word):
        with contextlib.suppress(IndexNotFound):
            return len(served.search(f'"{word}"', mode="lexical", k=40)) == 40
        return False

    asks = (
        lambda: served.search("w1"),
        lambda: served.search_vectors([ENCODER.encode_query("w1")]),
        lambda: len(served),
        lambda: served.get("1"),
        lambda: "1" in served,
        lambda: served.count({}),
        lambda: served.facets("number"),
        served.stats,
        served.ids,
        served.refresh,
    )
    for n_shards in (1, 3):
        build(n_shards, "elsewhere")
        wait_until(lambda: _raises(lambda: len(served)))
        for ask in asks * 2:
            with pytest.raises(IndexNotFound, match="serve it again"):
                ask()
        word = f"again{n_shards}"
        build(2, word)
        wait_until(lambda word=word: finds(word))
        assert all(finds(word) for _ in range(20))
    with Engine.open(path, encoder=ENCODER, writable=True, threads=1) as index:
        index.add([{"id": "late", "text": "moonlight"}])
        index.commit()
    wait_until(lambda: len(served) == 41)
    assert [hit.id for hit in served.search("moonlight", k=1)] == ["late"]


def _raises(ask):
    try:
        ask()
    except IndexNotFound:
        return True
    return False
