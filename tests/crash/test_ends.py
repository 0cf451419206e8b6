"""The interpreter exits in every way while an index is in any state: it exits cleanly and the index is intact.

pytest runs this file as a separate program, once for each pair. Work in progress at exit continues in a daemon
thread, which the interpreter stops at any point; a background merge is awaited.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.faults.torture import SHARE, figure
from support.indexes import changes
from support.indexes.changes import (
    DELETED,
    NEW,
    OLD,
    SMALL_MERGED_OFTEN,
    content,
    documents,
    options,
    prepare,
    stray_files,
    work,
)
from support.processes import run_python

from quarry import engine
from quarry.engine import IndexClosed, IndexLocked, InvalidDocument

REPEATS = (1, 12)
open_index = partial(changes.open_index, thresholds=SMALL_MERGED_OFTEN)
kept: list[object] = []  # objects that must live until the interpreter exits

# States: each function brings an existing index into a state and returns the open engine.


def is_open(path: Path) -> engine.Engine:
    return open_index(path)


def is_open_to_write(path: Path) -> engine.Engine:
    return open_index(path, writable=True)


def has_changes(path: Path) -> engine.Engine:
    index = open_index(path, writable=True)
    index.add(documents(NEW))
    index.delete(DELETED)
    return index


def was_closed(path: Path) -> engine.Engine:
    index = has_changes(path)
    index.commit()
    index.close()
    return open_index(path)


def met_an_error(path: Path) -> engine.Engine:
    """Keep errors whose tracebacks refer to the frames of the failed calls."""
    index = open_index(path, writable=True)
    for act in (
        lambda: index.add([*documents(NEW), {"id": "x", "text": ""}]),
        lambda: engine.build([*documents(NEW), {"id": "x", "text": ""}], path.parent / "new", **options()),
        lambda: open_index(path, writable=True),
    ):
        try:
            act()
        except (InvalidDocument, IndexLocked) as error:
            kept.append(error)
    assert len(kept) == 3
    return index


def is_half_read(path: Path) -> engine.Engine:
    """Keep iterators that are not exhausted."""
    index = open_index(path, writable=True)
    kept.append(iter(index.search(["old", "text"], k=4)))
    kept.append(index.documents())
    next(kept[0])
    next(kept[1])
    return index


def is_merging(path: Path) -> engine.Engine:
    index = open_index(path, writable=True)
    for doc in documents(NEW):
        index.add([doc])
        index.commit()
    return index


def under_way(act: Callable[[engine.Engine], object], *, writable: bool) -> Callable[[Path], engine.Engine]:
    """Return a state in which a daemon thread repeats an action."""

    def begin(path: Path) -> engine.Engine:
        index = open_index(path, writable=writable)
        has_begun = threading.Event()

        def go_on() -> None:
            while threading.main_thread().is_alive():
                has_begun.set()
                try:
                    act(index)
                except (IndexClosed, RuntimeError):  # raised when the interpreter exits: no new work is accepted
                    if threading.main_thread().is_alive():
                        raise

        threading.Thread(target=go_on, daemon=True).start()
        has_begun.wait()
        return index

    return begin


def change(index: engine.Engine) -> None:
    index.add(documents(NEW))
    index.delete(DELETED)
    index.commit()


def is_building(path: Path) -> engine.Engine:
    def build(_: engine.Engine) -> None:
        engine.build(documents(NEW), path.parent / "new", overwrite=True, **options())

    return under_way(build, writable=False)(path)


STATES: dict[str, Callable[[Path], engine.Engine]] = {
    "open": is_open,
    "open to write": is_open_to_write,
    "with changes": has_changes,
    "closed": was_closed,
    "after errors": met_an_error,
    "half read": is_half_read,
    "merging in the background": is_merging,
    "changing": under_way(change, writable=True),
    "adding": under_way(lambda index: (index.add(documents(NEW)), index.rollback()), writable=True),
    "merging": under_way(lambda index: index.merge(retrain=True), writable=True),
    "writing graphs": under_way(lambda index: index.optimize(), writable=True),
    "building": is_building,
    "verifying": under_way(lambda index: index.verify(), writable=False),
    "refreshing": under_way(lambda index: (index.refresh(), index.stats()), writable=False),
    **{
        f"searching, {mode}": under_way(
            lambda index, mode=mode: index.search("old text1", mode=mode), writable=False
        )
        for mode in ("dense", "lexical", "hybrid")
    },
}

USUAL_STATES = (
    "with changes", "after errors", "half read", "changing", "building", "merging in the background", "merging",
    "verifying", "searching, hybrid",
)  # fmt: skip

# Ends: each function gets the open engine, and ends the program or returns so that it ends by itself.


def returns(index: engine.Engine) -> None:
    kept.append(index)


def exits(index: engine.Engine) -> None:
    kept.append(index)
    sys.exit(3)


def raises(index: engine.Engine) -> None:
    sys.excepthook = lambda *_: None
    raise RuntimeError


def is_killed(index: engine.Engine) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def leaves_at_once(index: engine.Engine) -> None:
    os._exit(4)


def closes_at_exit(index: engine.Engine) -> None:
    atexit.register(index.close)


def searches_at_exit(index: engine.Engine) -> None:
    atexit.register(lambda: index.search("old text1", k=3))


def leaves_a_cycle(index: engine.Engine) -> None:
    """Leave a reference cycle that only the last garbage collection frees."""
    cycle: list[object] = [index]
    cycle.append(cycle)


def forks(index: engine.Engine) -> None:
    """Fork a child that exits normally before its parent."""
    kept.append(index)
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0


ENDS: dict[str, tuple[Callable[[engine.Engine], None], int]] = {
    "returns": (returns, 0),
    "exits": (exits, 3),
    "raises": (raises, 1),
    "is killed": (is_killed, -signal.SIGTERM),
    "leaves at once": (leaves_at_once, 4),
    "closes at exit": (closes_at_exit, 0),
    "searches at exit": (searches_at_exit, 0),
    "leaves a cycle": (leaves_a_cycle, 0),
    **({"forks": (forks, 0)} if hasattr(os, "fork") else {}),
}


def pairs() -> list[tuple[str, str]]:
    """Return all pairs at the torture level; otherwise each end with one state."""
    if SHARE:
        return list(itertools.product(STATES, ENDS))
    return list(zip(USUAL_STATES, ENDS, strict=False))


@pytest.mark.skipif(os.name == "nt", reason="signals do not end programs cleanly on this system")
@pytest.mark.parametrize(("state", "end"), pairs())
def test_the_interpreter_ends(state, end, tmp_path, torture):
    for number in range(figure(*REPEATS)):
        path = tmp_path / str(number) / "index"
        prepare("commit", path)
        flags = ("-X", "dev", "-W", "ignore::DeprecationWarning")
        done = run_python(*flags, __file__, path, state, end, timeout_s=120)
        assert (done.returncode, done.stderr) == (ENDS[end][1], ""), f"{state}, {end}: {done.stderr[-3000:]}"
        found = content(path)
        assert found in possible(state), f"{state}, {end}: {sorted(found)}"
        work("commit", path)
        assert content(path) == {key: text for key, text in OLD.items() if key not in DELETED} | NEW
        assert not stray_files(path), f"{state}, {end}"
        engine.build(documents(NEW), path.parent / "new", overwrite=True, **options())
        assert not stray_files(path.parent / "new"), f"{state}, {end}"
        torture.add(ends=1)


def possible(state: str) -> list[dict[str, str]]:
    """Return the contents that the index may have after the interpreter has exited."""
    changed = {key: text for key, text in OLD.items() if key not in DELETED} | NEW
    if state == "merging in the background":
        return [OLD | NEW]
    return [changed] if state == "closed" else [OLD, changed] if state == "changing" else [OLD]


def main(path: Path, state: str, end: str) -> None:
    index = STATES[state](path)
    time.sleep(random.random() / 20)
    ENDS[end][0](index)


if __name__ == "__main__":
    logging.disable()  # uncommitted additions are discarded, which is logged
    main(Path(sys.argv[1]), *sys.argv[2:])
