"""Builds and commits that are killed or interrupted: at every file operation, and at chosen moments.

pytest starts this file as a program of its own. It forks a child for each moment; the child sends itself the
signal, the next child looks at what is left.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

OLD = {f"old{number}": f"old text{number}" for number in range(8)}
NEW = {f"new{number}": f"new text{number} of length {number % 13}" for number in range(90)}
DELETED = ("old1", "old3")
MOMENTS = ("first document", "middle", "training")
FINISHED, FAILED = 0, 70


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize(("scenario", "first"), [("new", 1), ("overwrite", 2), ("commit", 3)])
def test_at_file_operations(tmp_path, scenario, first, name):
    """At every fifth of a hundred and more; each kind of change begins at another one."""
    told = run_this_file("sweep", scenario, name, tmp_path, first, 5)
    assert told["last"] > 80
    assert told["left"]["old"] > 12
    assert told["left"]["new"] > 0  # the signal came after the commit


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("scenario", ["new", "overwrite", "commit"])
def test_at_chosen_moments(tmp_path, scenario, name):
    assert run_this_file("moments", scenario, name, tmp_path) == dict.fromkeys(MOMENTS, "old")


def run_this_file(*arguments: object) -> dict:
    root = Path(__file__).resolve().parent.parent.parent
    found = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    return json.loads(found.stdout)


# The program. It does the work once before it forks, so that its children find all libraries imported.


def documents(moment: str = "", strike: Callable[[], None] = lambda: None) -> Iterator[dict[str, str]]:
    for number, (doc_id, text) in enumerate(NEW.items()):
        if (moment, number) in {("first document", 0), ("middle", 45)}:
            strike()
        yield {"id": doc_id, "text": text}


def prepare(scenario: str, path: Path) -> None:
    """The state before: nothing, or an index in two segments with a deleted document."""
    if scenario != "new":
        options = build_options()
        engine.build([{"id": "gone", "text": "gone"}], path, **options)
        with Engine.open(path, writable=True, encoder=options["encoder"]) as index:
            index.add([{"id": doc_id, "text": text} for doc_id, text in OLD.items()])
            index.commit()
            index.delete(["gone"])
            index.commit()


def work(scenario: str, path: Path, moment: str = "", strike: Callable[[], None] = lambda: None) -> None:
    options = build_options()
    if scenario != "commit":
        engine.build(documents(moment, strike), path, overwrite=True, **options)
        return
    with Engine.open(path, writable=True, encoder=options["encoder"]) as index:
        index.add(documents(moment, strike))
        index.delete(DELETED)
        index.commit()


def build_options() -> dict:
    from word_encoder import WordEncoder

    return {"encoder": WordEncoder(dim=16), "representation": "kmeans", "code_bytes": 4, "threads": 1}


def expected(scenario: str, state: str) -> dict[str, str]:
    if state == "old":
        return {} if scenario == "new" else OLD
    if scenario == "commit":
        return {doc_id: text for doc_id, text in OLD.items() if doc_id not in DELETED} | NEW
    return NEW


def state_of(scenario: str, path: Path) -> str:
    """Which of the two states is there; anything else is an error."""
    try:
        with Engine.open(path) as index:
            index.verify()
            found = {doc.id: doc.text for doc in index.get([*OLD, *NEW, "gone"])}
            assert len(found) == len(index), "documents that nobody added"
    except engine.IndexNotFound:
        assert scenario == "new", "the index is gone"
        return "old"
    state = "new" if any(doc_id in found for doc_id in NEW) else "old"
    assert found == expected(scenario, state), f"neither the old nor the new index: {sorted(found)}"
    return state


def stray_files(path: Path) -> set[str]:
    from formats.directory import Directory
    from formats.manifest import Manifest, latest_generation

    if not path.exists():
        return set()
    try:
        known = Manifest.load(Directory(path), latest_generation(Directory(path))).file_names()
    except engine.IndexNotFound:
        known = set()
    return {file.name for file in path.iterdir()} - known - {"write.lock"}


def check(scenario: str, path: Path, signal_number: int) -> str:
    """What must hold after the interruption, and that the same work then succeeds."""
    state = state_of(scenario, path)
    if signal_number == signal.SIGINT and state == "old":
        assert not stray_files(path), f"left behind: {stray_files(path)}"
    work(scenario, path)
    assert state_of(scenario, path) == "new"
    assert not stray_files(path), f"left behind in the end: {stray_files(path)}"
    return state


class Striker:
    """Sends this process a signal at its n-th file operation within a folder (half of a write is one too)."""

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
        from formats.directory import OutputFile

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
    """Its wait status; an error is printed."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(FAILED)
        os._exit(FINISHED)
    return os.waitpid(child, 0)[1]


def interrupted(action: Callable[[], None], path: Path) -> None:
    """An interrupt that arrives as an exception must say what is left; then die of it, as Python would."""
    from formats.directory import Directory
    from formats.manifest import latest_generation

    try:
        action()
    except KeyboardInterrupt as error:
        for note in getattr(error, "__notes__", []):
            try:
                generation = latest_generation(Directory(path))
            except engine.IndexNotFound:
                assert "there is no index" in note, note
            else:
                assert f"at generation {generation}." in note, note
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def strike_and_check(scenario: str, signal_number: int, path: Path, action: Callable[[], None]) -> str | None:
    """The state that is left, or None where the action finished before the signal came."""
    status = in_child(lambda: interrupted(action, path))
    if status == FINISHED:
        return None
    assert os.WIFSIGNALED(status), f"the child ended by itself with {status}"
    assert os.WTERMSIG(status) == signal_number
    states = path.parent / "state"
    assert in_child(lambda: states.write_text(check(scenario, path, signal_number))) == FINISHED
    return states.read_text()


def sweep(scenario: str, signal_number: int, base: Path, first: str, step: str) -> dict:
    """At file operation `first` and every `step` from there on, until the work is done before the signal comes."""
    left = {"old": 0, "new": 0}
    before = base / "before"
    assert in_child(lambda: prepare(scenario, before)) == FINISHED
    for moment in itertools.count(int(first), int(step)):
        path = base / str(moment) / "index"
        path.parent.mkdir()
        if before.exists():
            shutil.copytree(before, path)

        def action(path: Path = path, moment: int = moment) -> None:
            Striker(path, moment, signal_number)
            work(scenario, path)

        state = strike_and_check(scenario, signal_number, path, action)
        if state is None:
            break
        left[state] += 1
        shutil.rmtree(path.parent)
    return {"last": moment, "left": left}


def strike_at_moments(scenario: str, signal_number: int, base: Path) -> dict:
    return {moment: strike_at(scenario, signal_number, base / moment / "index", moment) for moment in MOMENTS}


def strike_at(scenario: str, signal_number: int, path: Path, moment: str) -> str:
    path.parent.mkdir()
    assert in_child(lambda: prepare(scenario, path)) == FINISHED

    def strike() -> None:
        os.kill(os.getpid(), signal_number)

    def action() -> None:
        training = engine.quantizer_training
        train = training.train_quantizer

        def struck_training(*arguments: object) -> object:
            strike()
            return train(*arguments)

        if moment == "training":
            training.train_quantizer = struck_training
        work(scenario, path, moment, strike)

    state = strike_and_check(scenario, signal_number, path, action)
    assert state, "the signal never came"
    return state


if __name__ == "__main__":
    import engine.builder
    import engine.quantizer_training
    import engine.segment_builder
    import formats.spool
    from engine import Engine

    engine.segment_builder.IVF_ROWS = 150  # lists and training with few documents
    formats.spool._MEMORY_BYTES = 1024  # temporary files from the first kilobyte on
    mode, scenario, name, base, *rest = sys.argv[1:]
    check("new", Path(base) / "warm up", signal.SIGKILL)
    run = sweep if mode == "sweep" else strike_at_moments
    json.dump(run(scenario, signal.Signals[name], Path(base), *rest), sys.stdout)
