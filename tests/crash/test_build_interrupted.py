"""Changes of an index killed or interrupted by real signals: at file operations, system calls and chosen moments.

pytest runs this file as a separate program. It forks a child for each moment; the child sends itself the signal,
and the next child checks what is left. If strace is installed, it kills whole processes at a system call.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.faults.torture import SHARE, figure
from support.indexes.changes import CHANGES, NEW, check_recovery, prepare, work
from support.processes import environment, fork, run_python

from quarry import engine
from quarry.formats.container.directory import Directory, OutputFile
from quarry.formats.manifest import find_latest_generation

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

ADDING = ("new", "overwrite", "commit")
MOMENTS = ("first document", "middle", "training")
FINISHED = 0
STEP = 1 if SHARE >= 1 else 17  # distance between the operations at which the signal is sent
SWEPT = {
    "SIGKILL": CHANGES if SHARE else ("commit", "background merge", "retrain", "update", "add indexes"),
    "SIGINT": CHANGES if SHARE else ("new", "overwrite", "commit", "delete", "merge", "graphs"),
}
CALLS = "write,fsync,rename,unlink,ftruncate"


@pytest.mark.parametrize("name", SWEPT)
def test_at_file_operations(tmp_path, name, torture):
    """A change that is killed at a file operation leaves the old or the new index."""
    swept = run_this_file("sweep", ",".join(SWEPT[name]), name, tmp_path, STEP)
    assert swept.keys() == set(SWEPT[name])
    for change, results in swept.items():
        torture.add(signals=sum(results["left"].values()))
        assert results["last"] > 30, change
        assert results["left"]["old"] > 0, change


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_at_chosen_moments(tmp_path, name):
    found = run_this_file("moments", ",".join(ADDING), name, tmp_path)
    assert found == dict.fromkeys(ADDING, dict.fromkeys(MOMENTS, "old"))


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("change", ["commit", "merge"])
def test_killed_at_a_system_call(tmp_path, change, torture):
    """A process that the kernel kills at a system call leaves the old or the new index."""
    before = tmp_path / "before"
    prepare(change, before)
    moments = moments_of(traced(change, copied(before, tmp_path / "counted"), tmp_path, "")[1])
    n_kills = min(len(moments), figure(2, 75))
    left = {"old": 0, "new": 0}
    for number in range(n_kills):
        path = copied(before, tmp_path / str(number))
        call, when = moments[number * len(moments) // n_kills]
        killed, _ = traced(change, path, tmp_path, f"--inject={call}:signal=SIGKILL:when={when}")
        assert killed, f"{call} {when} of {len(moments)}"
        left[check_recovery(change, path)] += 1
    torture.add(kills=n_kills, **left)
    assert left["old"] > 0


def moments_of(log: list[str]) -> list[tuple[str, int]]:
    """Return the system calls of the main thread in order, each with its number among those of the same name."""
    seen: Counter[str] = Counter()
    moments = []
    for line in log:
        thread, call = line.split("(")[0].split()[:2]
        if thread == log[0].split()[0] and call in CALLS:
            seen[call] += 1
            moments.append((call, seen[call]))
    return moments


def copied(before: Path, path: Path) -> Path:
    shutil.copytree(before, path)
    return path


def traced(change: str, path: Path, folder: Path, inject: str) -> tuple[bool, list[str]]:
    """Make the change under strace; return whether it was killed, and the calls it made."""
    log = folder / "strace"
    options = ["-f", "-qq", "-o", str(log), f"--trace={CALLS}"] + ([inject] if inject else [])
    command = [sys.executable, __file__, "work", change, "SIGKILL", str(path)]
    done = subprocess.run(
        ["strace", *options, *command], env=environment(), capture_output=True, text=True, check=False, timeout=300
    )
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip("this user may not trace processes")
    assert done.returncode == 0 or inject, done.stderr[-4000:]
    return done.returncode != 0, log.read_text(errors="replace").splitlines()


def run_this_file(*arguments: object) -> dict:
    found = run_python(__file__, *arguments, timeout_s=3000)
    assert found.returncode == 0, found.stderr[-4000:]
    return json.loads(found.stdout or "{}")


# The program makes the change once before it forks, so that its children have all libraries imported.


def documents(moment: str, strike: Callable[[], None]) -> Iterator[dict[str, str]]:
    for number, (doc_id, text) in enumerate(NEW.items()):
        if (moment, number) in {("first document", 0), ("middle", len(NEW) // 2)}:
            strike()
        yield {"id": doc_id, "text": text}


class Striker:
    """Sends this process a signal at its n-th file operation within a folder; half a write counts as one."""

    def __init__(self, folder: Path, n: int, signal_number: int) -> None:
        self._folder = str(folder)
        self._left = n
        self._signal = signal_number
        sys.addaudithook(self._audit)
        self._split_writes()

    def _audit(self, event: str, arguments: tuple) -> None:
        if event in {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "fcntl.flock"}:
            target = arguments[0]
            if event == "fcntl.flock" or str(target).startswith(self._folder):
                self._tick()

    def _split_writes(self) -> None:
        write, sync = OutputFile.write, OutputFile.sync

        def split_write(file: OutputFile, data: bytes) -> None:
            view = memoryview(data).cast("B")
            write(file, view[: len(view) // 2])
            self._tick()
            write(file, view[len(view) // 2 :])

        def noted_sync(file: OutputFile) -> None:
            self._tick()
            sync(file)
            self._tick()

        OutputFile.write, OutputFile.sync = split_write, noted_sync

    def _tick(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._signal)


def in_child(action: Callable[[], object]) -> int:
    """Run an action in a child process, print its error, and return its wait status."""
    return os.waitpid(fork(action), 0)[1]


def interrupted(action: Callable[[], None], path: Path) -> None:
    """Check that the notes of a `KeyboardInterrupt` name the state of the index, then die of the signal."""
    try:
        action()
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", []):
            try:
                generation = find_latest_generation(Directory(path))
            except engine.IndexNotFound:
                assert "there is no index" in note, note
            else:
                assert f"at generation {generation}." in note, note
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def strike_and_check(change: str, signal_number: int, path: Path, action: Callable[[], None]) -> str | None:
    """Return the state of the index after the signal, or None if the action finished before it."""
    status = in_child(lambda: interrupted(action, path))
    if status == FINISHED:
        return None
    assert os.WIFSIGNALED(status), f"the child ended by itself with {status}"
    assert os.WTERMSIG(status) == signal_number
    states = path.parent / "state"

    def look() -> None:
        clean = signal_number == signal.SIGINT and change in ADDING
        states.write_text(check_recovery(change, path, clean))

    assert in_child(look) == FINISHED
    return states.read_text()


def sweep(change: str, signal_number: int, base: Path, step: str) -> dict:
    """Send the signal at every `step`-th file operation, until the change finishes; return the states."""
    left = {"old": 0, "new": 0}
    first = CHANGES.index(change) % int(step) + 1
    before = base / "before"
    assert in_child(lambda: prepare(change, before)) == FINISHED
    for moment in itertools.count(first, int(step)):
        path = base / str(moment) / "index"
        path.parent.mkdir(parents=True)
        if before.exists():
            shutil.copytree(before, path)

        def action(path: Path = path, moment: int = moment) -> None:
            Striker(path, moment, signal_number)
            work(change, path)

        state = strike_and_check(change, signal_number, path, action)
        if state is None:
            break
        left[state] += 1
        shutil.rmtree(path.parent)
    return {"last": moment, "left": left}


def strike_at_moments(change: str, signal_number: int, base: Path) -> dict:
    return {moment: strike_at(change, signal_number, base / moment / "index", moment) for moment in MOMENTS}


def strike_at(change: str, signal_number: int, path: Path, moment: str) -> str:
    path.parent.mkdir(parents=True)
    assert in_child(lambda: prepare(change, path)) == FINISHED

    def strike() -> None:
        os.kill(os.getpid(), signal_number)

    def action() -> None:
        train = faiss.Kmeans.train

        def struck_training(*arguments: object, **options: object) -> object:
            strike()
            return train(*arguments, **options)

        if moment == "training":
            faiss.Kmeans.train = struck_training
        work(change, path, lambda: documents(moment, strike))

    state = strike_and_check(change, signal_number, path, action)
    assert state, "the signal never came"
    return state


def main(mode: str, changes: str, name: str, base: Path, *rest: str) -> dict:
    """Run one mode of the program."""
    if mode == "work":
        work(changes, base)
        return {}
    check_recovery("new", base / "warm up")
    strike = sweep if mode == "sweep" else strike_at_moments
    return {change: strike(change, signal.Signals[name], base / change, *rest) for change in changes.split(",")}


if __name__ == "__main__":
    import faiss

    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore the signal
    json.dump(main(*sys.argv[1:4], Path(sys.argv[4]), *sys.argv[5:]), sys.stdout)
