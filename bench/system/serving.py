"""Puts a server under load while documents are added and deleted: ``python -m bench serve``.

A process runs ``quarry serve``; clients in this process, on the same machine, search over connections that are
kept open, and one client adds and deletes documents, with a pause between commits. Searches have a filter that
leaves out what is added meanwhile, so that every answer can be compared with that of the index before. The load
average says how busy the machine was with something else.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.data.collections import add_collection, load_collection
from bench.harness.latency import summarize_ms
from bench.harness.records import Record, add_out, append_result
from quarry import engine

__all__ = ["add_arguments", "run"]

_NDJSON = "application/x-ndjson"
_N_ADDED = 20
_N_KEPT = 10  # commits whose documents are not deleted yet
_ONLY_OLD = {"new": {"$exists": False}}
_PAUSE_S = 1.0  # between commits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench serve``."""
    add_collection(parser, queries=500)
    parser.add_argument("--clients", type=int, default=4, help="connections that search (default: 4)")
    parser.add_argument("--seconds", type=float, default=60, help="duration of the load (default: 60)")
    parser.add_argument("--processes", type=int, default=1, help="of the server (default: 1)")
    parser.add_argument(
        "--mode", choices=("dense", "hybrid", "lexical"), default="hybrid", help="mode of the searches"
    )
    add_out(parser, "serve")


def run(args: argparse.Namespace) -> int:
    """Build an index of the collection, serve it, and append the figures; return 1 if an answer was wrong."""
    collection = load_collection(args)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "index"
        engine.build(({"id": name, "text": text} for name, text in collection.documents.items()), path)
        with _serving(path, args.processes) as (port, key):
            load = _Load(port, key, list(collection.queries.values()), args.mode)
            figures = load.measure(args.clients, args.seconds)
    about = {"collection": collection.name, "n_documents": len(collection.documents)}
    record = {**about, "mode": args.mode, "n_processes": args.processes, **figures}
    print(json.dumps(record, indent=2))
    append_result(args.out, record)
    return 1 if figures["n_wrong"] else 0


@contextmanager
def _serving(path: Path, n_processes: int) -> Iterator[tuple[int, str]]:
    """Run a server of an index; yield its port and its write key."""
    key = secrets.token_urlsafe(24)
    command = [sys.executable, "-m", "quarry", "serve", f"load={path}", "--port", "0"]
    command += ["--processes", str(n_processes)]
    environment = os.environ | {"QUARRY_WRITE_KEY": key}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r":(\d+)/ ", process.stdout.readline())
        assert match, "the server has not started"
        try:
            yield int(match[1]), key
        finally:
            process.terminate()


class _Client:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()

    def search(self, body: bytes) -> tuple[int, bytes]:
        return self.ask("POST", "/v1/indexes/load/search", body, **{"Content-Type": "application/json"})

    def figure(self, name: str) -> float:
        """Return one of the server's figures."""
        match = re.search(rf"^{name} (\S+)$", self.ask("GET", "/metrics")[1].decode(), re.MULTILINE)
        assert match, f"the metrics have no {name}"
        return float(match[1])


class _Load:
    """The clients of one server, and what they have seen."""

    def __init__(self, port: int, key: str, queries: list[str], mode: str) -> None:
        self._port = port
        self._key = key
        requests = ({"query": query, "mode": mode, "filter": _ONLY_OLD, "texts": False} for query in queries)
        self._bodies = [json.dumps(request).encode() for request in requests]
        with closing(_Client(port)) as client:
            self._expected = [_Answer(client.search(body)[1], mode) for body in self._bodies]
        self._mode = mode
        self._times_s: list[float] = []
        self._commits_s: list[float] = []
        self._wrong: Counter[str] = Counter()
        self._stopped = threading.Event()

    def measure(self, n_clients: int, seconds: float) -> Record:
        """Run the clients for some seconds; return rates, latencies in ms, memory in bytes, and what was wrong."""
        with closing(_Client(self._port)) as watcher:
            return self._run(watcher, n_clients, seconds)

    def _run(self, watcher: _Client, n_clients: int, seconds: float) -> Record:
        threads = [threading.Thread(target=self._search, args=(number,)) for number in range(n_clients)]
        threads.append(threading.Thread(target=self._write))
        start, cpu_s = time.monotonic(), watcher.figure("process_cpu_seconds_total")
        for thread in threads:
            thread.start()
        memory: list[int] = []
        while time.monotonic() < start + seconds:
            time.sleep(min(2.0, seconds / 10))
            memory.append(int(watcher.figure("process_resident_memory_bytes")))
        self._stopped.set()
        for thread in threads:
            thread.join()
        duration = time.monotonic() - start
        cpu_s = watcher.figure("process_cpu_seconds_total") - cpu_s
        return {
            "n_clients": n_clients,
            "seconds": round(duration, 1),
            "searches_s": round(len(self._times_s) / duration, 1),
            **summarize_ms(self._times_s, "search_"),
            "server_cpu_s": round(cpu_s, 2),
            "load_average": os.getloadavg()[0],
            "n_commits": len(self._commits_s),
            **summarize_ms(self._commits_s, "commit_"),
            "n_wrong": self._wrong.total(),
            "wrong": dict(self._wrong),
            "rss_bytes": memory,
            "rss_growth_of_second_half_bytes": memory[-1] - memory[len(memory) // 2],
        }

    def _search(self, first: int) -> None:
        with closing(_Client(self._port)) as client:
            self._search_with(client, first)

    def _search_with(self, client: _Client, first: int) -> None:
        for number in itertools.count(first * 97):
            if self._stopped.is_set():
                return
            place = number % len(self._bodies)
            start = time.perf_counter()
            status, answer = client.search(self._bodies[place])
            self._times_s.append(time.perf_counter() - start)
            if status != 200:
                self._wrong[f"status {status}"] += 1
            elif not _Answer(answer, self._mode).agrees(self._expected[place]):
                self._wrong["other hits"] += 1

    def _write(self) -> None:
        with closing(_Client(self._port)) as client:
            self._write_with(client)

    def _write_with(self, client: _Client) -> None:
        """Add documents, look whether a search finds one of them at once, and delete those of earlier commits."""
        authorization = {"Authorization": f"Bearer {self._key}"}
        for number in itertools.count():
            if self._stopped.wait(_PAUSE_S):
                return
            ids = [f"new {number} {row}" for row in range(_N_ADDED)]
            lines = [
                {"id": name, "text": f"mark{number}x. A new document.", "metadata": {"new": 1}} for name in ids
            ]
            body = "\n".join(map(json.dumps, lines)).encode()
            start = time.perf_counter()
            status, _ = client.ask(
                "POST", "/v1/indexes/load/documents", body, **authorization, **{"Content-Type": _NDJSON}
            )
            self._commits_s.append(time.perf_counter() - start)
            if status != 200:
                self._wrong[f"status {status} of an addition"] += 1
            request = {"query": f"mark{number}x", "k": 100, "mode": "lexical"}
            hits = json.loads(client.search(json.dumps(request).encode())[1])["hits"]
            if sorted(hit["id"] for hit in hits) != sorted(ids):
                self._wrong["an addition that is not found"] += 1
            if number >= _N_KEPT:
                old = json.dumps({"ids": [f"new {number - _N_KEPT} {row}" for row in range(_N_ADDED)]}).encode()
                headers = {**authorization, "Content-Type": "application/json"}
                status, answer = client.ask("POST", "/v1/indexes/load/delete", old, **headers)
                if status != 200 or json.loads(answer)["n_deleted"] != _N_ADDED:
                    self._wrong["a deletion"] += 1


class _Answer:
    """The part of an answer that stays the same while other documents are added and deleted."""

    def __init__(self, body: bytes, mode: str) -> None:
        parsed = json.loads(body)
        self._scores = {hit["id"]: hit["dense_score"] for hit in parsed["hits"]}
        self._ids = [hit["id"] for hit in parsed["hits"]]
        self._is_certain = mode == "dense" and parsed["exactness"] == "exact"

    def agrees(self, other: _Answer) -> bool:
        """Compare the number of hits, and the dense scores of common ones; if both are exact, also which they are.

        Hybrid hits depend on the statistics of all documents, and approximate ones on the segments.
        """
        if self._is_certain and other._is_certain and self._ids != other._ids:
            return False
        common = self._scores.keys() & other._scores.keys()
        are_equal = all(self._scores[name] == other._scores[name] for name in common)
        return len(self._ids) == len(other._ids) and are_equal and bool(common)
