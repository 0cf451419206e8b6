"""Power losses at any moment of random histories keep every commit and leave an intact index."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from support.faults.memory_directory import MemoryDirectory
from support.faults.power_loss import Disk, File
from support.faults.system_calls import Event, Recorder, SystemCalls
from support.faults.torture import figure
from support.indexes import changes
from support.indexes.changes import SMALL_MERGED_OFTEN, Texts, documents, stray_files

from quarry import engine
from quarry.formats.container.directory import Directory
from quarry.formats.errors import IndexNotFound
from quarry.formats.snapshot import Snapshot, check_files

STATES_A_HISTORY = 50
SEED = 5
STEPS = ("add", "add", "delete", "commit", "commit", "merge", "graphs", "rollback", "close", "build")
open_index = partial(changes.open_index, thresholds=SMALL_MERGED_OFTEN)
options = partial(changes.options, SMALL_MERGED_OFTEN)


def content(directory: Directory) -> Texts:
    """Return all live documents after checking every byte of the index, or nothing if there is no index."""
    try:
        snapshot = Snapshot(directory)
    except IndexNotFound:
        return {}
    assert check_files(snapshot.directory, snapshot.manifest) == []
    found: Texts = {}
    for segment in snapshot.segments:
        for ordinal in range(segment.reader.n_docs):
            if segment.deleted is None or not segment.deleted[ordinal]:
                found[segment.reader.ids[ordinal]] = segment.reader.documents[ordinal].text
    snapshot.close()
    return found


@dataclass
class History:
    """Makes random changes of an index and records them.

    Attributes:
        states: the contents of the index, one for each commit.
        calls: the system calls, with the marks "begin n" and "done n" around the commit of state n.
    """

    path: Path
    chance: Random
    states: list[Texts]
    calls: Recorder = field(default_factory=Recorder)

    def run(self, n_steps: int) -> None:
        with self.calls.installed():
            if not self.states[-1]:
                self.build()
            while n_steps > 0:
                n_steps -= self.write(n_steps)

    def commit(self, state: Texts, action) -> None:
        self.states.append(state)
        self.calls.mark(f"begin {len(self.states) - 1}")
        action()
        self.calls.mark(f"done {len(self.states) - 1}")

    def build(self) -> None:
        texts = self.texts(12)
        self.commit(texts, lambda: engine.build(documents(texts), self.path, overwrite=True, **options()))

    def texts(self, n_max: int) -> Texts:
        """Return texts for a random set of new and existing documents."""
        numbers = self.chance.sample(range(40), self.chance.randint(1, n_max))
        return {f"d{number}": f"text {self.chance.randrange(10**6)}" for number in numbers}

    def write(self, n_steps: int) -> int:
        """Open a writer, make random changes and close it; return the number of steps."""
        with open_index(self.path, writable=True) as index:
            assert stray_files(self.path) == set()
            pending = dict(self.states[-1])
            for step in range(1, n_steps + 1):
                kind = self.chance.choice(STEPS)
                if kind == "add":
                    texts = self.texts(5)
                    index.add(documents(texts))
                    pending |= texts
                elif kind == "delete":
                    ids = self.chance.sample(sorted(pending), min(len(pending), 3))
                    index.delete(ids)
                    pending = {doc_id: text for doc_id, text in pending.items() if doc_id not in ids}
                elif kind == "commit":
                    self.commit(dict(pending), index.commit)
                elif kind == "rollback":
                    index.rollback()
                    pending = dict(self.states[-1])
                elif kind == "merge":
                    index.merge(retrain=self.chance.random() < 0.2)
                elif kind == "graphs":
                    index.optimize()
                elif kind == "close" or self.chance.random() < 0.7:
                    return step
                else:
                    break
            else:
                return n_steps
        self.build()
        return step


def allowed(states: list[Texts], events: list[Event]) -> list[Texts]:
    """Return the states allowed after these events: the last durable one, and those being committed."""
    last, begun = 0, 0
    for event in events:
        if event.kind == "mark":
            what, number = event.name.split()
            last, begun = (int(number) if what == "done" else last), int(number)
    return [states[number] for number in range(last, begun + 1)]


def store(files: dict[str, bytes], path: Path) -> None:
    """Replace the contents of the folder by these files."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / name).write_bytes(data)


def test_no_commit_is_lost_and_nothing_is_half(tmp_path, torture):
    """Every power loss leaves the last durable commit or a later one; the next history continues from there."""
    chance, torture.seed = Random(SEED), SEED
    files: dict[str, bytes] = {}
    states: list[Texts] = [{}]
    path = tmp_path / "index"
    for _ in range(figure(1000, 50_000) // STATES_A_HISTORY):
        history = History(path, chance, states)
        store(files, path)
        assert content(Directory(path)) == states[-1]
        history.run(8)
        events, disk, n_applied = history.calls.events, Disk(files), 0
        for moment in sorted(chance.choices(range(len(events) + 1), k=STATES_A_HISTORY)):
            disk.apply(events[n_applied:moment])
            n_applied = moment
            files = disk.after_power_loss(chance)
            found = content(MemoryDirectory(path, files))
            assert found in allowed(history.states, events[:moment]), f"after {moment} of {len(events)} calls"
        torture.add(histories=1, calls=len(events), states=STATES_A_HISTORY)
        states = [found]
    assert torture.counts["calls"] > 30 * torture.counts["histories"]


class TestModel:
    """The disk model can lose everything that was not synced, and nothing else."""

    def outcomes(self, *events):
        disk = Disk({"old": b"o"})
        disk.apply(Event(*event) for event in events)
        chance = Random(0)
        return [disk.after_power_loss(chance) for _ in range(200)]

    def test_names_and_data_that_were_not_synced_may_go(self):
        found = self.outcomes(("create", "a"), ("write", "a", b"x" * 1500), ("unlink", "old"))
        assert {"a" in left for left in found} == {"old" in left for left in found} == {True, False}
        kinds = {left["a"] for left in found if "a" in left}
        assert b"" in kinds
        assert b"x" * 1500 in kinds
        assert any(b"\0" in data for data in kinds)
        assert all(len(data) <= 1500 for data in kinds)

    def test_what_was_synced_stays(self):
        found = self.outcomes(
            ("create", "a"), ("write", "a", b"x" * 700), ("fsync", "a"), ("write", "a", b"y" * 700),
            ("rename", "a b"), ("fsync", ""), ("unlink", "old"),
        )  # fmt: skip
        assert all(left["b"].startswith(b"x" * 700) and "a" not in left for left in found)
        assert len({left["b"] for left in found}) > 3

    def test_a_rename_is_atomic(self):
        found = self.outcomes(("create", "a"), ("fsync", ""), ("rename", "a b"))
        assert {frozenset(left) for left in found} == {frozenset({"old", "a"}), frozenset({"old", "b"})}

    def test_a_survivor(self):
        file = File(bytearray(b"z" * 2000), 600)
        assert all(file.survivor(Random(seed)).startswith(b"z" * 600) for seed in range(100))


def test_a_disk_without_any_loss_is_what_was_written(tmp_path):
    history = History(tmp_path / "index", Random(1), [{}])
    history.run(8)
    disk = Disk({})
    disk.apply([*history.calls.events, Event("fsync", "")])
    files = disk.after_power_loss(Random(0))
    real = {file.name: file.read_bytes() for file in history.path.iterdir() if file.name != "write.lock"}
    assert {name: data for name, data in files.items() if name != "write.lock"} == real
    with SystemCalls().installed():
        assert content(Directory(history.path)) == history.states[-1]
