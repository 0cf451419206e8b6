"""Sixteen writers compete for the lock, some of them killed, while eight readers check what they see.

Every commit replaces all documents, so that a reader that sees two rounds at once has seen a state that was never
committed. pytest runs this file as a separate program, which forks the processes.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.faults.torture import figure
from support.indexes import changes
from support.indexes.changes import OFTEN, stray_files
from support.processes import fork, run_python

from quarry import engine
from quarry.engine import IndexLocked
from quarry.engine.thresholds import Thresholds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

N_WRITERS, N_READERS, N_DOCS = 16, 8, 8
DURATION_S = (4, 600)
LEAST_COMMITS = 4
LONGEST = 9  # times the duration, on a machine that is so busy that the commits take longer
THRESHOLDS = Thresholds(merging=OFTEN)
open_index, options = partial(changes.open_index, thresholds=THRESHOLDS), partial(changes.options, THRESHOLDS)


def test_writers_and_readers(tmp_path, torture):
    duration = figure(*DURATION_S)
    done = run_python(__file__, tmp_path, duration, timeout_s=10 * duration + 120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    commits, n_answers = check_logs(tmp_path)
    torture.add(writers=N_WRITERS, readers=N_READERS, commits=len(commits), answers=n_answers)
    torture.add(killed=sum(1 for _ in tmp_path.glob("killed-*")))
    with open_index(tmp_path / "index", writable=True) as index:
        assert stray_files(tmp_path / "index") == set()
        assert seen(index) == max(commits.values())
        index.verify()


def check_logs(folder: Path) -> tuple[dict[int, int], int]:
    """Check that each round was committed once and readers saw committed rounds in order; return counts."""
    commits = {}
    for log in folder.glob("writer-*"):
        for generation, number in lines(log):
            assert generation not in commits, f"generation {generation} was committed twice"
            commits[generation] = number
    assert sorted(commits.values()) == list(range(1, len(commits) + 1)), (
        "a commit was lost, or built on an old one"
    )
    generations, n_answers = sorted(commits), 0
    assert [commits[generation] for generation in generations] == sorted(commits.values())
    for log in folder.glob("reader-*"):
        before = (0, 0)
        for generation, number in lines(log):
            last = max((known for known in generations if known <= generation), default=0)
            assert number == commits.get(last, 0), f"generation {generation} is not what was committed"
            assert before <= (generation, number), "back in time"
            before = (generation, number)
            n_answers += 1
    assert len(commits) >= LEAST_COMMITS
    assert n_answers > N_READERS
    return commits, n_answers


def lines(log: Path) -> Iterator[list[int]]:
    return map(json.loads, log.read_text().splitlines())


# The program that the test runs.


def texts(number: int) -> list[dict[str, str]]:
    return [{"id": f"d{place}", "text": f"round {number} document {place}"} for place in range(N_DOCS)]


def seen(index: engine.Engine) -> int:
    """Return the round that an index holds, checked by every way to read it."""
    found = [document.text for document in index.get([f"d{place}" for place in range(N_DOCS)])]
    for mode in ("dense", "lexical", "hybrid"):
        hits = index.search("round document", k=2 * N_DOCS, mode=mode)
        assert sorted(hit.text for hit in hits if hit.id != "even") == sorted(found), mode
    numbers = {int(text.split()[1]) for text in found}
    assert len(numbers) == 1, f"several rounds at once: {found}"
    (number,) = numbers
    assert len(index) == N_DOCS + (number % 2 == 0), "documents of another round"
    return number


class Ending:
    """When the processes end: after the duration, and some commits, which they count in shared memory.

    Args:
        duration_s: seconds.
    """

    def __init__(self, duration_s: float) -> None:
        started = time.monotonic()
        self._least, self._latest = started + duration_s, started + LONGEST * duration_s
        self._n_commits = mmap.mmap(-1, 1)

    def count(self) -> None:
        """Count a commit; the writer that made it still holds the lock."""
        self._n_commits[0] = min(LEAST_COMMITS, self._n_commits[0] + 1)

    def is_reached(self) -> bool:
        """Whether it is time to end."""
        now = time.monotonic()
        return now >= self._latest or (now >= self._least and self._n_commits[0] == LEAST_COMMITS)


def write(path: Path, chance: random.Random, log: Callable[[int, int], None]) -> None:
    """Take the lock and commit a few rounds; sometimes be killed before a commit."""
    try:
        index = open_index(path, writable=True)
    except IndexLocked:
        time.sleep(chance.uniform(0.001, 0.01))
        return
    with index:
        assert stray_files(path) == set()
        for _ in range(chance.randint(1, 4)):
            number = seen(index) + 1
            if chance.random() < 0.2:
                index.add(["never committed"])
                index.rollback()
            index.add(texts(number))
            if number % 2:
                index.delete("even")
            else:
                index.add([{"id": "even", "text": f"round {number} is even"}])
            if chance.random() < 0.05:
                (path.parent / f"killed-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            log(index.commit(), number)
            if chance.random() < 0.1:
                index.merge()


def read(path: Path, chance: random.Random, log: Callable[[int, int], None], ending: Ending) -> None:
    """Refresh and read repeatedly; sometimes verify every byte."""
    with open_index(path) as index:
        while not ending.is_reached() and chance.random() > 0.02:
            index.refresh()
            number = seen(index)
            log(int(str(index.stats()["generation"])), number)
            if chance.random() < 0.05:
                index.verify()


def start(kind: str, number: int, folder: Path, ending: Ending) -> int:
    """Fork a writer or a reader; return its process id."""

    def play() -> None:
        chance = random.Random(f"{kind}-{number}-{os.getpid()}")
        with (folder / f"{kind}-{os.getpid()}").open("a", buffering=1) as file:

            def log(generation: int, round_number: int) -> None:
                file.write(f"[{generation}, {round_number}]\n")
                if kind == "writer":
                    ending.count()

            while not ending.is_reached():
                if kind == "writer":
                    write(folder / "index", chance, log)
                else:
                    read(folder / "index", chance, log, ending)

    return fork(play)


def run(folder: Path, duration_s: float) -> None:
    """Run all processes until the time is over, and replace each writer that was killed."""
    engine.build([*texts(0), {"id": "even", "text": "round 0 is even"}], folder / "index", **options())
    with open_index(folder / "index") as index:  # so that the children have all libraries imported
        assert seen(index) == 0
    ending = Ending(duration_s)
    running = {start("writer", number, folder, ending): number for number in range(N_WRITERS)}
    running |= {start("reader", number, folder, ending): -1 for number in range(N_READERS)}
    while running:
        child, status = os.wait()
        number = running.pop(child)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and number >= 0:
            if not ending.is_reached():
                running[start("writer", number, folder, ending)] = number
        else:
            assert status == 0, f"a {'reader' if number < 0 else 'writer'} ended with {status}"


if __name__ == "__main__":
    run(Path(sys.argv[1]), float(sys.argv[2]))
