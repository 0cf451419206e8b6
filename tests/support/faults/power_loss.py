"""States of a disk after a power loss: a model of a file system that guarantees no more than POSIX does.

Data are durable after a sync of their file; names, renames and deletions after a sync of the folder. Before that,
any part of them may have reached the disk, in any order: sectors of 512 bytes as written or zeros, any length of a
file, any subset of the changes of names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from support.faults.system_calls import Event

SECTOR = 512


@dataclass(eq=False)
class File:
    """The data of a file, of which the first `n_synced` bytes are durable."""

    data: bytearray = field(default_factory=bytearray)
    n_synced: int = 0

    def survivor(self, chance: Random) -> bytes:
        """Return a possible content after a power loss."""
        n_written = len(self.data)
        length = chance.choice([self.n_synced, n_written, n_written, chance.randint(self.n_synced, n_written)])
        left = self.data[:length]
        share_lost = chance.choice([0.0, 0.0, 0.1, 0.5, 1.0])
        for low in range(self.n_synced - self.n_synced % SECTOR, length, SECTOR):
            if chance.random() < share_lost:
                start, end = max(low, self.n_synced), min(low + SECTOR, length)
                left[start:end] = bytes(end - start)
        return bytes(left)


class Disk:
    """The folder of an index on a disk after some system calls.

    Args:
        files: durable content by name.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._certain = {name: File(bytearray(data), len(data)) for name, data in files.items()}
        self._names = dict(self._certain)
        self._uncertain: list[tuple[str, str, File]] = []

    def apply(self, events: Iterable[Event]) -> None:
        """Apply the events of a `Recorder`."""
        for event in events:
            getattr(self, f"_{event.kind}")(event)

    def after_power_loss(self, chance: Random) -> dict[str, bytes]:
        """Return the content by name of one possible state."""
        names = dict(self._certain)
        share = chance.choice([0.0, 0.5, 0.9, 1.0])
        for kind, name, file in self._uncertain:
            if chance.random() < share:
                _change(names, kind, name, file)
        return {name: file.survivor(chance) for name, file in names.items()}

    def _mark(self, event: Event) -> None:
        """Ignore a remark of the test."""

    def _create(self, event: Event) -> None:
        if event.name not in self._names:  # every writer opens the lock file
            self._change(event, File())

    def _write(self, event: Event) -> None:
        self._names[event.name].data += event.data

    def _ftruncate(self, event: Event) -> None:
        self._change(event, File(), "create")

    def _fsync(self, event: Event) -> None:
        if event.name:
            file = self._names[event.name]
            file.n_synced = len(file.data)
        else:
            self._certain = dict(self._names)
            self._uncertain.clear()

    def _rename(self, event: Event) -> None:
        self._change(event, self._names[event.name.split()[0]])

    def _unlink(self, event: Event) -> None:
        self._change(event, self._names[event.name])

    def _change(self, event: Event, file: File, kind: str = "") -> None:
        _change(self._names, kind or event.kind, event.name, file)
        self._uncertain.append((kind or event.kind, event.name, file))


def _change(names: dict[str, File], kind: str, name: str, file: File) -> None:
    if kind == "create":
        names[name] = file
    elif kind == "rename":
        source, target = name.split()
        names.pop(source, None)
        names[target] = file
    else:
        names.pop(name, None)
