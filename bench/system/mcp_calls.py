"""Times a server of the Model Context Protocol, as a client sees it: ``python -m bench mcp``.

Each run starts ``quarry mcp`` on an index of the collection. The server is ready when it has answered a handshake
and listed its tools; then they are called one after another over its standard input and output, each search with
another query. The first search is stated apart, because it loads the model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.data.collections import add_collection, load_collection
from bench.harness.latency import summarize_ms
from bench.harness.records import Record, add_out, append_result
from quarry import engine

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench mcp``."""
    add_collection(parser, queries=200)
    parser.add_argument("--starts", type=int, default=5, help="number of servers started (default: %(default)s)")
    add_out(parser, "mcp")


def run(args: argparse.Namespace) -> int:
    """Build an index of the collection, measure servers of it, and append the figures; return 1 after an error."""
    collection = load_collection(args)
    queries = list(collection.queries.values())
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "index"
        engine.build(({"id": name, "text": text} for name, text in collection.documents.items()), path)
        found = _measure(path, queries, next(iter(collection.documents)), args.starts)
    record = {"collection": collection.name, "n_documents": len(collection.documents), **found}
    print(json.dumps(record, indent=2))
    append_result(args.out, record)
    return 1 if found["n_errors"] else 0


def _measure(path: Path, queries: list[str], document: str, n_starts: int) -> Record:
    """Return medians of the starts, and the latencies of all calls, in ms."""
    ready: list[float] = []
    first: list[float] = []
    searches: list[float] = []
    documents: list[float] = []
    n_errors = 0
    for _ in range(n_starts):
        start = time.perf_counter()
        with _serving(path) as server:
            server.ask("tools/list", {})
            ready.append(time.perf_counter() - start)
            for place, query in enumerate(queries):
                seconds, is_error = server.call("search", {"query": query})
                (searches if place else first).append(seconds)
                n_errors += is_error
                seconds, is_error = server.call("get_document", {"id": document})
                documents.append(seconds)
                n_errors += is_error
    return {
        "n_starts": n_starts,
        "ready_p50_s": round(statistics.median(ready), 3),
        "ready_max_s": round(max(ready), 3),
        "first_search_p50_ms": round(1e3 * statistics.median(first), 1),
        "n_searches": len(searches),
        **summarize_ms(searches, "search_"),
        **summarize_ms(documents, "get_document_"),
        "n_errors": n_errors,
        "load_average": os.getloadavg()[0],
    }


@contextmanager
def _serving(path: Path) -> Iterator[_Server]:
    command = [sys.executable, "-m", "quarry", "mcp", f"index={path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield _Server(process)
        finally:
            process.terminate()


class _Server:
    """A server that has answered the handshake: one message of JSON a line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        from mcp.types import LATEST_PROTOCOL_VERSION

        self._process = process
        self._numbers = itertools.count(1)
        about = {"name": "bench", "version": "1"}
        self.ask(
            "initialize",
            {"protocolVersion": LATEST_PROTOCOL_VERSION, "capabilities": {}, "clientInfo": about},
        )
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, object]) -> tuple[float, bool]:
        """Call a tool; return the seconds until its answer was there, and whether it is an error."""
        start = time.perf_counter()
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return time.perf_counter() - start, bool(answer.get("isError"))

    def ask(self, method: str, parameters: Mapping[str, object]) -> dict[str, Any]:
        """Send a request, and return its result.

        Raises:
            RuntimeError: the server has ended, or answers with an error of the protocol.
        """
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": parameters})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == number:
                if "result" not in message:
                    raise RuntimeError(f"{method}: {message.get('error')}")
                found: dict[str, Any] = message["result"]
                return found
        raise RuntimeError(f"{method}: the server has ended")

    def _send(self, message: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()
