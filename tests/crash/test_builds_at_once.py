"""Builds of several processes into one folder: at most one succeeds, and the others do not affect it.

The first tests run a second build at each system call of a first one. For the others pytest runs this file as a
separate program, which forks builds of different lengths, some of which fail or are killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.faults.system_calls import SystemCalls
from support.faults.torture import figure, sample
from support.indexes.changes import options, stray_files
from support.processes import fork, run_python

from quarry import engine
from quarry.engine import Engine, IndexExists, IndexLocked, IndexNotFound, QuarryError
from quarry.formats.write_lock import LOCK_NAME, WriteLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

ROUNDS = (25, 6000)
FOLDERS = ("missing", "missing, and the one above", "empty", "with an unknown file", "with an index")
NOT_BUILT = {"IndexExists", "IndexLocked"}


class Broken(Exception):
    """A source of documents that fails."""


class Interrupted(SystemCalls):
    """Runs `act` before the n-th system call."""

    def __init__(self, moment: int, act: Callable[[], None]) -> None:
        super().__init__()
        self._left, self._act = moment, act
        self.kinds: list[str] = []

    @property
    def is_done(self) -> bool:
        return self._left <= 0

    def call(self, kind, name, perform):
        self.kinds.append(kind)
        self._left -= 1
        if self._left == 0:
            self._act()
        return perform()


def texts(name: str, n: int) -> Iterator[dict[str, str]]:
    return ({"id": f"{name}{number}", "text": f"text{number} of {name}"} for number in range(n))


def broken_texts(name: str) -> Iterator[dict[str, str]]:
    yield from texts(name, 3)
    raise Broken


def outcome(path: Path, name: str, *, is_broken: bool) -> str:
    """Build an index; return "built" or the name of the error."""
    try:
        engine.build(broken_texts(name) if is_broken else texts(name, 3), path, **options())
    except (QuarryError, Broken) as error:
        return type(error).__name__
    return "built"


def owner(path: Path) -> str | None:
    """Return the common prefix of all ids of a complete index, or None if there is no index."""
    try:
        with Engine.open(path) as index:
            n = index.verify().n_documents
            (name,) = {
                doc.id[0] for doc in index.get([f"{name}{number}" for name in "abcdz" for number in range(n)])
            }
            assert {doc.id for doc in index.get([f"{name}{number}" for number in range(n)])} == {
                f"{name}{number}" for number in range(n)
            }
    except IndexNotFound:
        return None
    return name


@pytest.mark.parametrize("folder", ["missing", "empty"])
@pytest.mark.parametrize("broken", ["none", "the first", "the second"])
def test_a_second_build_at_every_call(folder, broken, tmp_path, torture):
    path, first_built = tmp_path / "above" / "index", 0
    if folder == "empty":
        path.mkdir(parents=True)
    counted = Interrupted(sys.maxsize, lambda: None)
    with counted.installed():
        outcome(path, "a", is_broken=broken == "the first")
    for moment in sample(counted.kinds, 8, folder + broken):
        shutil.rmtree(tmp_path / "above", ignore_errors=True)
        if folder == "empty":
            path.mkdir(parents=True)
        second = []
        calls = Interrupted(moment, lambda second=second: second.append(build_second(path, broken)))
        with calls.installed():
            first = outcome(path, "a", is_broken=broken == "the first")
        assert calls.is_done
        outcomes = (moment, first, *second)
        built = [name for name, each in zip("ab", (first, *second), strict=True) if each == "built"]
        assert len(built) <= 1, outcomes
        assert built or broken != "none", outcomes
        assert owner(path) == (built[0] if built else None), outcomes
        assert built or not path.exists() or {file.name for file in path.iterdir()} <= {LOCK_NAME}, outcomes
        assert built or folder == "empty" or not path.exists(), outcomes
        assert {first, *second} <= NOT_BUILT | {"built", "Broken"}, outcomes
        assert not stray_files(path), outcomes
        first_built += first == "built"
        torture.add(builds=2)
    assert first_built > 3 or broken == "the first"


def build_second(path: Path, broken: str) -> str:
    return outcome(path, "b", is_broken=broken == "the second")


def test_a_lost_lock_file_is_not_deleted(tmp_path):
    """A failed build whose lock file was deleted leaves the lock file of another writer in place."""
    path = tmp_path / "index"

    def deleting():
        yield {"id": "a0", "text": "text"}
        (path / LOCK_NAME).unlink()
        other.append(WriteLock(path))
        raise Broken

    other: list[WriteLock] = []
    with pytest.raises(Broken) as caught:
        engine.build(deleting(), path, **options())
    assert "there is no index" in caught.value.__notes__[0]
    assert other[0].is_in_place()
    other[0].release()


def test_folders_deleted_again_and_again(tmp_path, monkeypatch):
    """A build recreates a folder that others delete before it is locked, and gives up after many attempts."""
    path, left = tmp_path / "above" / "index", [5]
    real = os.open

    def too_late(name, *arguments, **options):
        if Path(name).name == LOCK_NAME and left[0]:
            left[0] -= 1
            shutil.rmtree(path.parent)
        return real(name, *arguments, **options)

    monkeypatch.setattr(os, "open", too_late)
    engine.build(texts("a", 3), path, **options())
    assert owner(path) == "a"
    shutil.rmtree(path)
    left[0] = 1000
    with pytest.raises(IndexLocked, match="make and delete the folder again and again"):
        engine.build(texts("a", 3), path, **options())
    assert not path.exists()


def test_many_rounds(tmp_path, torture):
    """Builds by two to four processes, some of which fail, are killed or overwrite, leave one valid index."""
    n_rounds = figure(*ROUNDS)
    seed = int.from_bytes(os.urandom(4), "little")
    done = run_python(__file__, tmp_path, n_rounds, seed, timeout_s=120 + 10 * n_rounds)
    assert done.returncode == 0, f"seed {seed}: {(done.stdout + done.stderr)[-4000:]}"
    counts = json.loads(done.stdout)
    torture.add(rounds=n_rounds, **counts)
    assert counts["built"] > n_rounds // 5  # two thirds on average
    assert counts["IndexLocked"] > n_rounds // 10


# The program that the tests run.


def lasting_texts(name: str, chance: random.Random, end: str) -> Iterator[dict[str, str]]:
    """Yield a few documents or many, some after a delay; fail or be killed at one of them if `end` says so."""
    n = chance.choice([1, 1, 5, 40])
    strike = chance.randrange(n) if end != "good" else n
    for number, document in enumerate(texts(name, n)):
        if chance.random() < 2 / n:
            time.sleep(chance.choice([0.0, 0.001, 0.01]))
        if number == strike and end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == strike:
            raise Broken
        yield document


def build_in_child(path: Path, log: Path, name: str, end: str, overwrite: bool, seed: int, begin: float) -> int:
    """Fork a build that begins at a moment of the monotonic clock; return its process id."""

    def build() -> None:
        chance = random.Random(seed)
        time.sleep(max(0.0, begin - time.monotonic()))
        try:
            engine.build(lasting_texts(name, chance, end), path, overwrite=overwrite, **options())
            log.write_text("built")
        except (IndexExists, IndexLocked, Broken) as error:
            log.write_text(type(error).__name__)

    return fork(build)


def play(folder: Path, kind: str, chance: random.Random) -> Counter[str]:
    """Run one round of builds, check what they leave, and return how they ended."""
    overwrite = chance.random() < 0.25
    path = folder / "above" / "index" if "above" in kind else folder / "index"
    if kind not in {"missing", "missing, and the one above"}:
        path.mkdir(parents=True)
    if kind == "with an unknown file":
        (path / "notes.txt").touch()
    if kind == "with an index":
        engine.build(texts("z", 2), path, **options())
    names = "abcd"[: chance.randint(2, 4)]
    all_good = chance.random() < 0.6
    ends = {name: "good" if all_good else chance.choice(["good", "broken", "killed"]) for name in names}
    begin = time.monotonic() + 0.005
    children = {
        build_in_child(
            path,
            folder / name,
            name,
            end,
            overwrite,
            chance.randrange(1 << 32),
            begin + chance.choice([0.0, 0.0, 0.001, 0.01]) * chance.random(),
        ): name
        for name, end in ends.items()
    }
    while children:
        child, status = os.wait()
        name = children.pop(child)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            assert ends[name] == "killed"
            (folder / name).write_text("killed")
        else:
            assert status == 0, f"build {name} ended with {status}"
    outcomes = {name: (folder / name).read_text() for name in names}
    check(path, kind, overwrite, ends, outcomes)
    return Counter(outcomes.values())


def check(path: Path, kind: str, overwrite: bool, ends: dict[str, str], outcomes: dict[str, str]) -> None:
    """Check that the possible number of builds succeeded, and that the index is that of one of them or missing."""
    context = f"{kind}, overwrite={overwrite}: {ends}, {outcomes}"
    built = {name for name, each in outcomes.items() if each == "built"}
    assert all(ends[name] == "good" for name in built), context
    if kind == "with an index" and not overwrite:
        assert set(outcomes.values()) == {"IndexExists"}, context
        assert owner(path) == "z", context
        return
    assert overwrite or len(built) <= 1, context
    if set(ends.values()) == {"good"}:
        assert built, context
        assert set(outcomes.values()) <= {"built", "IndexLocked"} | (set() if overwrite else {"IndexExists"}), (
            context
        )
    found = owner(path)
    if built:
        assert found in built, context
    else:
        assert found == ("z" if kind == "with an index" else None), context
    if "killed" not in outcomes.values():
        assert stray_files(path) <= {"notes.txt"}, context
    if path.exists():
        WriteLock(path).release()
    if not built:
        engine.build(texts("a", 2), path, overwrite=overwrite, **options())
        assert owner(path) == "a", context
        assert stray_files(path) <= {"notes.txt"}, context
    if kind == "with an unknown file":
        assert (path / "notes.txt").exists(), context


def main(folder: Path, n_rounds: int, seed: int) -> None:
    """Run all rounds, and print how often each outcome occurred."""
    chance, counts = random.Random(seed), Counter[str]()
    engine.build(texts("a", 2), folder / "first", **options())  # so that the children have all libraries imported
    assert owner(folder / "first") == "a"
    for number in range(n_rounds):
        (folder / str(number)).mkdir()
        counts += play(folder / str(number), FOLDERS[number % len(FOLDERS)], chance)
        shutil.rmtree(folder / str(number))
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
