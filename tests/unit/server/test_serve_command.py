"""The command ``quarry serve`` as a process: its output, its end, and its errors."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")
pytest.importorskip("uvicorn", reason="serving needs the extra server")

from support.indexes.word_encoder import WordEncoder
from support.processes import run_python, until
from support.server.running_server import NDJSON, READ_KEY, WRITE_KEY, RunningServer, bearer, running_command

from quarry.engine import AccessFailed, build
from quarry.engine.cli.commands import main
from quarry.server import app
from quarry.server.running import is_loopback, listen

LONGEST_S = 60.0


@pytest.mark.skipif(sys.platform == "win32", reason="signals do not end programs cleanly on this system")
def test_a_server_runs_until_a_signal(small_index: Path, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(f"{READ_KEY}\n")
    words = (f"small={small_index}", "--read-key-file", key_file, "--max-k", 5)
    with running_command(*words, QUARRY_WRITE_KEY=WRITE_KEY) as (process, server, names):
        assert names == "small"
        assert server.search("small", query="bread").status == 401
        answer = server.post("/v1/indexes/small/search", {"query": "bread", "k": 5}, **bearer(READ_KEY))
        assert answer.json["hits"][0]["metadata"]["subject"] == "bread"
        assert server.post("/v1/indexes/small/search", {"query": "bread", "k": 6}, **bearer()).status == 422
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_no_second_server_takes_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has an option of its own for that; what SO_REUSEADDR does elsewhere, it does without."""
    with listen("127.0.0.1", 0) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        with pytest.raises(AccessFailed, match="cannot listen"):
            listen("127.0.0.1", opened.getsockname()[1])
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)  # any other option
    with listen("127.0.0.1", 0) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not opened.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


@pytest.mark.skipif(sys.platform == "win32", reason="signals do not end programs cleanly on this system")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_right_after_the_start_ends_it(small_index: Path, number: signal.Signals) -> None:
    with running_command(small_index) as (process, _, _):
        process.send_signal(number)
        assert process.wait(20) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals do not end programs cleanly on this system")
@pytest.mark.parametrize(("number", "n_processes"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_second_signal_ends_it_at_once(small_index: Path, number: signal.Signals, n_processes: int) -> None:
    words = (small_index, "--timeout-s", 1000, "--processes", n_processes)
    with running_command(*words, QUARRY_WRITE_KEY=WRITE_KEY) as (process, server, _):
        with server.connect() as connection:
            headers = {
                "Host": "localhost",
                "Content-Type": NDJSON,
                "Content-Length": 1000,
                "Expect": "100-continue",
            }
            lines = [f"{name}: {value}" for name, value in (headers | bearer()).items()]
            head = "\r\n".join(["POST /v1/indexes/index/documents HTTP/1.1", *lines, "", ""])
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # the request has begun

            def has_ended() -> bool:
                process.send_signal(number)
                return process.poll() is not None

            until(has_ended, LONGEST_S, 0.1)
        assert process.returncode in (1, -number)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nowhere"], "nowhere"),
        (["{index}", "--host", "0.0.0.0"], "a server that other machines can reach needs a key"),
        (["{index}", "--port", "{port}"], "cannot listen on 127.0.0.1 port {port}"),
        (["{index}", "--port", "70000"], "not a port"),
        (["{index}", "--host", "nowhere.invalid", "--read-key-file", "{key}"], "not an address of this machine"),
        (["{index}", "--host", "192.0.2.1", "--read-key-file", "{key}"], "cannot listen on 192.0.2.1"),
        (["{index}", "--read-key-file", "{index}/none"], "cannot be read"),
        (["{index}", "{index}"], "two indexes have the same name"),
        (["a="], "an empty path"),
        (["{index}", "--processes", "0"], "not a number of processes"),
        (["{index}", "--processes", "1000"], "not a number of processes"),
        (["{index}", "--max-k", "0"], "max_k is out of range"),
        (["{index}", "--replicas", "2"], "--replicas and --replica-cpus are settings of Ray"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    small_index: Path, tmp_path: Path, words: list[str], problem: str, capsys, monkeypatch
) -> None:
    monkeypatch.delenv("QUARRY_READ_KEY", raising=False)
    monkeypatch.delenv("QUARRY_WRITE_KEY", raising=False)
    (tmp_path / "key").write_text(READ_KEY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = [word.format(index=small_index, port=port, key=tmp_path / "key") for word in words]
        assert main(["serve", *given]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("quarry: ")
    assert said.err.count("\n") == 1
    assert problem.format(port=port) in said.err


def test_a_key_in_the_environment_is_enough_for_other_machines(small_index: Path) -> None:
    words = (small_index, "--host", "0.0.0.0", "--allow-host", "search.example")
    with running_command(*words, QUARRY_WRITE_KEY=WRITE_KEY) as (process, everywhere, _):
        server = RunningServer(("127.0.0.1", everywhere.address[1]), None)
        assert server.ask("GET", "/v1/indexes").status == 401
        assert server.ask("GET", "/v1/indexes", **bearer()).status == 200
        assert server.ask("GET", "/v1/indexes", host="search.example", **bearer()).status == 200
        assert server.ask("GET", "/v1/indexes", host="other.example", **bearer()).status == 421
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", "")),
    ],
)
def test_only_loopback_is_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_missing_library_is_named(small_index: Path) -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; sys.modules['starlette.applications'] = None\n"
        f"from quarry.engine.cli.commands import main; sys.exit(main(['serve', {str(small_index)!r}]))"
    )
    done = run_python("-c", program)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'quarry-search[server]'" in done.stderr


def test_an_index_of_another_encoder_is_refused_at_the_start(tmp_path: Path, capsys) -> None:
    build([{"text": "bread"}], tmp_path / "words", encoder=WordEncoder(dim=16))
    assert main(["serve", str(tmp_path / "words"), "--port", "0"]) == 1
    assert "the vectors of this index are of another encoder; open it with encoder=..." in capsys.readouterr().err


def test_an_index_without_an_encoder_is_served(tmp_path: Path) -> None:
    build([{"text": "bread", "vectors": [1.0, 0.0]}], tmp_path / "given", dim=2)
    with app([tmp_path / "given"]) as served:
        assert list(served.indexes) == ["given"]
