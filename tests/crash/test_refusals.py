"""Missing permissions and exhausted file descriptors, at any call and in random histories.

Every public call either succeeds or raises an error of Quarry that names the path; the index is in the state
before or after the call, and once the cause is removed, nothing that was added is lost.

pytest runs this file as a separate program. It makes every call once, so that all libraries are imported, and
forks; if the tests are run by root, the child becomes a user without privileges.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import json
import logging
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from public_calls import CALLS, READING, attempt, check_world, make_world
from refusals import NOBODY, become_nobody, descriptors, folder_of_anybody, mode_of, only
from support.faults.torture import SHARE, figure
from support.indexes import changes
from support.indexes.changes import SMALL_MERGED_OFTEN, documents, options, stray_files
from support.processes import fork, run_python

from quarry import engine
from quarry.engine import (
    AccessFailed,
    CommitFailed,
    DurabilityUnknown,
    Engine,
    IndexClosed,
    IndexExists,
    MergeFailed,
    QuarryError,
)
from quarry.engine.bundled import default_bundle_path

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or not Path("/proc/self/fd").exists(),
    reason="no fork or no list of descriptors on this system",
)

STEP = 1 if SHARE >= 1 else 29
FEWER = 1 if SHARE >= 1 else 5  # distance between the numbers of free descriptors
HISTORIES = (6, 800)
N_OPERATIONS = 25
TYPED = (AccessFailed, CommitFailed, MergeFailed, IndexClosed, DurabilityUnknown)
open_index = partial(changes.open_index, thresholds=SMALL_MERGED_OFTEN)
MERGED_AND_CLOSED = (
    "is committed, but cannot be opened",
    "is visible, but may not survive a power loss",
    "whether the commit is visible, and for good, is unknown",
)  # what a writer says that a background merge has closed
SMALL = {f"old{number}": f"old text{number}" for number in range(3)}
IDS = [*SMALL, *(f"new{number}" for number in range(6))]
Operation = tuple[Callable[[], object], Callable[[QuarryError | None], None]]


def test_a_permission_that_is_missing(torture):
    """Every call succeeds or raises a typed error if a file or folder lacks a permission."""
    counts = run_this_file("permissions", STEP)
    torture.add(**counts)
    assert counts["refused"] > 8
    assert counts["granted"] > 8


def test_no_descriptor_is_left(torture):
    """Every call succeeds or raises a typed error with n free descriptors, for n from 0 up, and closes all."""
    counts = run_this_file("descriptors")
    torture.add(**counts)
    assert counts["refused"] > len(CALLS)
    assert counts["granted"] >= len(CALLS) - 1


def test_a_bundle_that_cannot_be_read(torture):
    """Opening an encoder raises `AccessFailed` if a file is unreadable or descriptors have run out."""
    counts = run_this_file("bundles")
    torture.add(**counts)
    assert counts["refused"] > 8
    assert counts["granted"] > 2


def test_histories(torture):
    """Random changes, some of which the system refuses, leave an index with the expected texts."""
    seed = int.from_bytes(os.urandom(4), "little")
    counts = run_this_file("histories", figure(*HISTORIES), seed)
    torture.add(**counts)
    assert counts["refused"] > 8
    assert counts["retried"] > 0


def run_this_file(*arguments: object) -> dict[str, int]:
    with folder_of_anybody() as folder:
        done = run_python(__file__, folder, *arguments, timeout_s=7200)
        assert done.returncode == 0, f"{arguments}: {done.stderr[-6000:]}"
        return json.loads(done.stdout)


# The program that the tests run.


def as_nobody(action: Callable[[], Counter[str]]) -> Counter[str]:
    """Run an action in a child process without privileges; return what it counts."""
    reader, writer = os.pipe()

    def act() -> None:
        os.close(reader)
        become_nobody()
        os.write(writer, json.dumps(action()).encode())

    child = fork(act)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        context = file.read()
    assert os.waitpid(child, 0)[1] == 0, "see above"
    return Counter(json.loads(context))


def own(path: Path) -> None:
    """Give all files to the user without privileges, so that their permissions have an effect."""
    if os.geteuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, NOBODY, NOBODY)


def targets(world: Path) -> Iterator[tuple[str, int]]:
    """Yield files and folders, relative to the world, with the permissions to set."""
    for path in [world, *sorted(world.rglob("*"))]:
        if "other" not in path.parts:
            for mode in (0o000, 0o444, 0o555, 0o333) if path.is_dir() else (0o000, 0o222, 0o444):
                yield path.relative_to(world).as_posix(), mode


def permissions(folder: Path, step: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    cases = list(itertools.product(targets(folder / "before"), CALLS))
    for number, ((target, mode), name) in enumerate(cases[:: int(step)]):
        world = folder / str(number)
        shutil.copytree(folder / "before", world)
        with mode_of(world / target, mode):
            error = attempt(name, world)
            context = f"{name}, {target} {mode:o}: {error!r} {error}"
        counts["granted" if error is None else "refused"] += 1
        if isinstance(error, IndexExists):
            assert name == "build over an index", context
        elif error is not None:
            assert isinstance(error, TYPED), context
            assert str(world) in str(error.path), context
            assert not isinstance(error, AccessFailed) or error.errno in {errno.EACCES, errno.EPERM}, context
            assert os.strerror(errno.EACCES) in str(error), context
        if target == "index" and mode == 0 and name in READING:
            assert isinstance(error, AccessFailed), context
        check_world(name, world, error)
        shutil.rmtree(world)
    return counts


def exhaust(folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name in CALLS:
        for n in itertools.count(0, FEWER):
            world = folder / "world"
            shutil.copytree(folder / "before", world)
            before = descriptors()
            with only(n):
                error = attempt(name, world)
            context = f"{name} with {n} descriptors: {error!r} {error}"
            assert error is None or isinstance(error, (*TYPED, IndexExists)), context
            if error is not None and not isinstance(error, IndexExists):
                assert os.strerror(errno.EMFILE) in str(error), context
                assert str(world) in str(error.path), context
            is_over = error is None or isinstance(error, IndexExists)
            counts["granted" if error is None else "refused"] += 1
            check_world(name, world, error)
            error = None
            gc.collect()
            assert descriptors() == before, context
            shutil.rmtree(world)
            if is_over:
                break
            assert n < 50, context
    return counts


def bundles(folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    bundle = folder / "bundle"
    used = {"bundle", "bundle.json", "model.onnx", "tokenizer.json"}
    cases = [
        (path, mode)
        for path in (bundle, *sorted(bundle.iterdir()))
        for mode in ((0o000, 0o444, 0o333) if path.name in used else (0o000,))
    ]
    for path, mode in cases:
        with mode_of(path, mode):
            error = caught(lambda: use(bundle))
        context = f"{path.name} {mode:o}: {error!r} {error}"
        counts["granted" if error is None else "refused"] += 1
        if error is not None:
            assert isinstance(error, AccessFailed), context
            assert error.errno == errno.EACCES, context
            assert str(path) in str(error.path), context
        assert (error is not None) == (
            path.name in used and mode in ({0, 0o444} if path == bundle else {0, 0o333})
        ), context
    for n in itertools.count():
        before = descriptors()
        with only(n):
            error = caught(lambda: use(bundle))
        assert descriptors() == before
        counts["granted" if error is None else "refused"] += 1
        if error is None:
            return counts
        assert isinstance(error, AccessFailed), f"{n} descriptors: {error!r} {error}"
        assert error.errno == errno.EMFILE, f"{n} descriptors: {error}"
        assert n < 20
    return counts


def use(bundle: Path) -> None:
    """Open an encoder and load its model."""
    engine.open_encoder(bundle).encode_query("a query")


class History:
    """A writer, a reader, and their expected contents.

    An operation runs while the system refuses some calls, or none; its effect is checked afterwards, when nothing
    is refused.

    Attributes:
        committed: the texts of the last commit by id.
        pending: the possible texts after the next commit; several after a failed addition, which may or may not
            have accepted its document.
    """

    def __init__(self, path: Path, chance: random.Random, counts: Counter[str]) -> None:
        self.path, self.chance, self.counts = path, chance, counts
        self.committed = dict(SMALL)
        self.pending = [dict(SMALL)]
        self.n_added = 0
        self.writer = open_index(path, writable=True)
        self.reader = open_index(path)

    def play(self) -> None:
        """Run one operation, refused or not, and check its effect."""
        changes = [self.add, self.add, self.delete, self.commit, self.commit, self.commit]
        operation = self.chance.choice([*changes, self.merge, self.roll_back, self.look])
        act, check_result = operation()
        with self.refusal():
            error = caught(act)
        self.counts["operations"] += 1
        self.counts["refused"] += error is not None
        assert error is None or isinstance(error, TYPED), f"{operation.__name__}: {error!r} {error}"
        check_result(error)
        if isinstance(error, CommitFailed):
            self.retry()
        elif error is not None and is_closed(self.writer):
            self.counts["closed"] += 1
            self.open_again()
        if self.chance.random() < 0.1:
            self.open_again()
        self.check()

    @contextlib.contextmanager
    def refusal(self) -> Iterator[None]:
        kind = self.chance.choice(["none", "none", "descriptors", "folder", "file"])
        if kind == "descriptors":
            with only(self.chance.choice([0, 0, 1, 2, 3, 4, 6])):
                yield
        elif kind == "folder":
            with mode_of(self.path, self.chance.choice([0o000, 0o444, 0o555])):
                yield
        elif kind == "file":
            with mode_of(self.chance.choice(sorted(self.path.iterdir())), self.chance.choice([0o000, 0o444])):
                yield
        else:
            yield

    def add(self) -> Operation:
        self.n_added += 1
        doc_id, text = f"new{self.chance.randrange(6)}", f"text{self.n_added} " * self.chance.choice([1, 40])
        taken = [{**each, doc_id: text} for each in self.pending]

        def check_result(error: QuarryError | None) -> None:
            if error is None:
                self.pending = taken
            elif isinstance(error, CommitFailed):
                self.pending += taken

        return lambda: self.writer.add([{"id": doc_id, "text": text}]), check_result

    def delete(self) -> Operation:
        ids = self.chance.sample(IDS, 2)
        left = [{key: each[key] for key in each.keys() - set(ids)} for each in self.pending]

        def check_result(error: QuarryError | None) -> None:
            self.pending = left if error is None else self.pending

        return lambda: self.writer.delete(ids), check_result

    def commit(self) -> Operation:
        def check_result(error: QuarryError | None) -> None:
            notes = " ".join(getattr(error, "__notes__", ()))
            found = content(self.path)
            if error is None or isinstance(error, MergeFailed) or "was committed" in notes:
                assert found in self.pending, f"{error!r} {error}"
            elif isinstance(error, (IndexClosed, DurabilityUnknown)):
                assert found in [*self.pending, self.committed], f"{error!r} {error}"
            else:
                assert found == self.committed, f"{error!r} {error}"
                return
            self.committed, self.pending = found, [dict(found)]

        return self.writer.commit, check_result

    def merge(self) -> Operation:
        retrain = self.chance.random() < 0.3
        return lambda: self.writer.merge(retrain), lambda error: None

    def roll_back(self) -> Operation:
        def check_result(error: QuarryError | None) -> None:
            self.pending = [dict(self.committed)] if error is None else self.pending

        return self.writer.rollback, check_result

    def look(self) -> Operation:
        use = self.chance.choice(
            [
                self.reader.refresh,
                self.reader.verify,
                self.reader.stats,
                lambda: self.reader.search("old text1", k=3),
                lambda: open_index(self.path).close(),
            ]
        )
        return use, lambda error: None

    def retry(self) -> None:
        """Commit with the same writer, which has kept the uncommitted changes.

        A background merge may have been committed during the refusal. If its files could not be opened, or its
        commit not be made durable, it has closed the writer.
        """
        self.counts["retried"] += 1
        error = caught(self.writer.commit)
        if isinstance(error, IndexClosed):
            assert any(each in str(error) for each in MERGED_AND_CLOSED), str(error)
            self.counts["closed"] += 1
            self.open_again()
            return
        assert error is None or isinstance(error, MergeFailed), repr(error)  # a background merge, as above
        self.committed = content(self.path)
        assert self.committed in self.pending, f"lost: {self.pending}, found {self.committed}"
        self.pending = [dict(self.committed)]

    def open_again(self) -> None:
        """Close the writer, and open a new one without uncommitted changes."""
        error = caught(self.writer.close)  # a failed background merge is raised here at the latest
        assert error is None or isinstance(error, TYPED), f"close: {error!r} {error}"
        self.writer = open_index(self.path, writable=True)
        self.pending = [dict(self.committed)]

    def check(self) -> None:
        """Check that everything committed can be read and searched."""
        self.reader.refresh()
        assert {doc.id: doc.text for doc in self.reader.get(IDS)} == self.committed
        assert len(self.reader) == len(self.committed)
        if self.committed:
            hits = self.reader.search("old text1 text2", k=20, mode="dense")
            assert {hit.id for hit in hits} == set(self.committed)

    def end(self) -> None:
        """Close everything, and check that no orphan file is left."""
        error = caught(self.writer.close)  # of a background merge
        assert error is None or isinstance(error, TYPED), f"close: {error!r} {error}"
        self.reader.close()
        open_index(self.path, writable=True).close()
        assert not stray_files(self.path)
        assert content(self.path) == self.committed


def caught(act: Callable[[], object]) -> QuarryError | None:
    try:
        act()
    except QuarryError as error:
        return error
    return None


def is_closed(index: Engine) -> bool:
    """Return whether the writer is closed, by a change that has no effect."""
    return isinstance(caught(lambda: index.delete([])), IndexClosed)


def content(path: Path) -> dict[str, str]:
    with open_index(path) as index:
        index.verify()
        found = {doc.id: doc.text for doc in index.get(IDS)}
        assert len(found) == len(index)
        return found


def histories(folder: Path, n_histories: str, seed: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number in range(int(n_histories)):
        chance = random.Random(f"{seed}-{number}")
        path = folder / str(number)
        shutil.copytree(folder / "small", path)
        before = descriptors()
        try:
            history = History(path, chance, counts)
            for _ in range(N_OPERATIONS):
                history.play()
            history.end()
        except BaseException as error:
            error.add_note(f"history {number} of seed {seed}")
            raise
        del history
        gc.collect()
        assert descriptors() == before, f"history {number} of seed {seed}"
        shutil.rmtree(path)
    return counts


def main(folder: Path, mode: str, *rest: str) -> None:
    make_world(folder / "before")
    engine.build(documents(SMALL), folder / "small", **options())
    for name in CALLS:
        shutil.copytree(folder / "before", folder / "warm")
        attempt(name, folder / "warm")
        shutil.rmtree(folder / "warm")
    shutil.copytree(default_bundle_path(), folder / "bundle")
    use(folder / "bundle")
    own(folder)
    act = {"permissions": permissions, "descriptors": exhaust, "bundles": bundles, "histories": histories}[mode]
    json.dump(as_nobody(lambda: act(folder, *rest)), sys.stdout)


if __name__ == "__main__":
    logging.disable()
    main(Path(sys.argv[1]), *sys.argv[2:])
