"""A server of several processes: shared figures, and the end of one process or of all."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")
pytest.importorskip("uvicorn", reason="serving needs the extra server")

from support.processes import environment, until
from support.server import waiting_server as waiting
from support.server.running_server import WRITE_KEY, Command, RunningServer, running_command

from quarry import engine

N_PROCESSES = 2
LIMIT_S = 60.0


def serving(index: Path) -> AbstractContextManager[Command]:
    words = (f"small={index}", "--processes", N_PROCESSES, "--threads", 1)
    return running_command(*words, QUARRY_WRITE_KEY=WRITE_KEY)


def children_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that answer requests, without the resource tracker of multiprocessing."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            command = path.joinpath("cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == process.pid and b"spawn_main" in command:
            found.append(int(path.name))
    return sorted(found)


def wait_until(condition: Callable[[], object]) -> None:
    until(condition, LIMIT_S, 0.05)


def exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def figure(server: RunningServer, pattern: str) -> float:
    found = re.search(rf"^{pattern} (\S+)$", server.ask("GET", "/metrics").body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


SEARCHES = r'quarry_http_requests_total\{method="POST",path="/v1/indexes/\{index\}/search",status="200"\}'


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_processes_share_a_socket_and_their_figures_and_see_each_others_commits(
    small_index: Path, tmp_path: Path
) -> None:
    with serving(shutil.copytree(small_index, tmp_path / "small")) as (process, server, _):
        children = children_of(process)
        assert len(children) == N_PROCESSES
        n_searches = 40
        for _ in range(n_searches):  # each on a new connection, which either process accepts
            assert server.search("small", query="bread").json["hits"]
        wait_until(lambda: figure(server, SEARCHES) == n_searches)
        assert server.add("small", [{"id": "new", "text": "A zeppelin over the lake."}]).status == 200
        for _ in range(n_searches):
            assert server.search("small", query="zeppelin").json["hits"][0]["id"] == "new"
        wait_until(lambda: figure(server, r'quarry_documents_added_total\{index="small"\}') == 1)
        wait_until(lambda: figure(server, SEARCHES) == 2 * n_searches)

        os.kill(children[0], signal.SIGKILL)
        wait_until(lambda: len(children_of(process)) == N_PROCESSES and children[0] not in children_of(process))
        for _ in range(n_searches):
            assert server.search("small", query="zeppelin").json["hits"][0]["id"] == "new"
        wait_until(lambda: figure(server, SEARCHES) == 3 * n_searches)

        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
        assert "ended with status -9 and is started again" in process.stderr.read()
        assert not any(map(exists, children))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_process_is_left_when_the_first_is_killed(small_index: Path) -> None:
    with serving(small_index) as (process, _, _):
        children = children_of(process)
        process.kill()
        wait_until(lambda: not any(map(exists, children)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_processes_start_ends_all_of_them_quietly(
    small_index: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "quarry", "serve", str(small_index), "--port", "0", "--processes", "4"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            wait_until(lambda: len(children_of(process)) >= 2)
            children = children_of(process)
            os.killpg(process.pid, number)  # as a terminal does for Ctrl-C
            assert process.wait(LIMIT_S) == 0
            assert process.stderr.read() == ""
            assert not any(map(exists, children))
        finally:
            process.kill()


@pytest.fixture(params=[1, 2], ids=["alone", "child"])
def waiting_server(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str], RunningServer]]:
    engine.build([{"id": "moon", "text": "the moon"}], tmp_path / "index", encoder=waiting.ENCODER)
    command = [sys.executable, "-m", waiting.__name__, str(tmp_path / "index"), str(tmp_path), str(request.param)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline())
            yield process, RunningServer(("127.0.0.1", port), None)
        finally:
            process.kill()


def test_a_process_finishes_a_change_and_then_ends(
    tmp_path: Path, waiting_server: tuple[subprocess.Popen[str], RunningServer]
) -> None:
    process, server = waiting_server
    with ThreadPoolExecutor(2) as threads:
        adding = threads.submit(server.add, "index", [{"id": "new", "text": "wait"}])
        wait_until((tmp_path / "begun").exists)
        searching = threads.submit(server.search, "index", query="wait")
        wait_until(lambda: figure(server, "quarry_http_requests_in_progress") == 3)
        process.terminate()
        assert searching.result().status == 503  # when its time is up
        time.sleep(3 * waiting.END_AFTER_S)  # the process would end now
        (tmp_path / "go").touch()
        assert (adding.result().status, adding.result().json["n_added"]) == (200, 1)
    assert process.wait(LIMIT_S) == 0


def test_a_process_ends_although_a_search_does_not(
    tmp_path: Path, waiting_server: tuple[subprocess.Popen[str], RunningServer]
) -> None:
    process, server = waiting_server
    with ThreadPoolExecutor(1) as threads:
        searching = threads.submit(server.search, "index", query="wait")
        wait_until((tmp_path / "begun").exists)
        process.terminate()
        assert searching.result().status == 503
        assert process.wait(waiting.LONGEST_S / 2) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_that_ends_again_and_again_does_not_end_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.server.failing_server", str(tmp_path)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        (tmp_path / "0 fails").touch()
        for child in children_of(process):
            if "quarry-serve-0" in (tmp_path / str(child)).read_text():
                os.kill(child, signal.SIGKILL)
        lines = [process.stderr.readline() for _ in range(4)]
        (tmp_path / "0 fails").unlink()
        wait_until(lambda: len(list(tmp_path.glob("[0-9]*"))) == N_PROCESSES + 1)
        process.terminate()
        assert process.wait(LIMIT_S) == 0
        assert [re.search("ended with status (.*)", line)[1] for line in lines] == [
            "-9 and is started again",
            "3 and is started again",
            "3 and is started again",
            "3 and is started again in 1 s",
        ]
