"""A server that listens on a local port while a test runs, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.processes import until

from quarry.server.running import listen, make_server

READ_KEY, WRITE_KEY = "a-key-for-reading", "a-key-for-writing"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.json.keys() == {"error"}
        assert self.json["error"].keys() == {"type", "message", "field", "expected", "found"}
        return self.json["error"]


class RunningServer:
    """A server, and a client that opens a connection for each request."""

    def __init__(self, address: tuple[str, int], server: Any) -> None:
        self.address = address
        self._server = server

    @property
    def url(self) -> str:
        return "http://{}:{}/".format(*self.address)

    def ask(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Answer:
        """Send one request; underscores in the names of headers become hyphens."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, names)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def post(self, path: str, value: object, **headers: str) -> Answer:
        """Send a JSON value."""
        return self.ask("POST", path, json.dumps(value), content_type="application/json", **headers)

    def search(self, index: str, **request: object) -> Answer:
        return self.post(f"/v1/indexes/{index}/search", request)

    def add(self, index: str, documents: list[object], key: str = WRITE_KEY) -> Answer:
        lines = "\n".join(json.dumps(document) for document in documents)
        return self.ask("POST", f"/v1/indexes/{index}/documents", lines, content_type=NDJSON, **bearer(key))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def stop(self) -> None:
        """Begin to stop the server, as a signal does."""
        self._server.should_exit = True


def bearer(key: str = WRITE_KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@contextlib.contextmanager
def running(app: Any, grace_s: float = 20, **options: Any) -> Iterator[RunningServer]:
    """Serve an application on a thread."""
    server = make_server(app, grace_s, **options)
    with listen("127.0.0.1", 0) as opened:
        address = opened.getsockname()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            yield RunningServer(address, server)
        finally:
            server.should_exit = True
            thread.join()


Command = tuple[subprocess.Popen[str], RunningServer, str]


@contextlib.contextmanager
def running_command(*words: object, **variables: str) -> Iterator[Command]:
    """Run ``quarry serve`` with these arguments on a free port; kill it at the end if it still runs.

    Args:
        *words: arguments of the command.
        **variables: of its environment; other variables of Quarry are removed.

    Yields:
        The process, a client of it, and the names of the indexes as the command printed them.
    """
    command = [sys.executable, "-m", "quarry", "serve", *map(str, words), "--port", "0"]
    others = {name: value for name, value in os.environ.items() if not name.startswith("QUARRY_")}
    with subprocess.Popen(
        command, env=others | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"serving (.+) at http://([\d.]+):(\d+)/ \(Ctrl\+C stops\)\n", line)
            assert found, line + process.stderr.read()
            yield process, RunningServer((found[2], int(found[3])), None), found[1]
        finally:
            process.kill()
