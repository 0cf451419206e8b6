"""What may be left on a disk when the power goes: a model of a file system that promises no more than POSIX does.

Data are certain once their file was synced; names, renames and deletions once the folder was. Until then any
part of them may have reached the disk, in any order: sectors of 512 bytes, each as it was written or zeros, a
file of any length in between, any subset of the changes of names (each of them whole).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from support.faults.system_calls import Event

SECTOR = 512


@dataclass(eq=False)
class File:
    """A file's data, of which the first `n_synced` bytes are certain."""

    data: bytearray = field(default_factory=bytearray)
    n_synced: int = 0

    def survivor(self, chance: Random) -> bytes:
        """What is left of it."""
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
    """The folder of an index on a disk, as the calls made so far leave it.

    Args:
        files: name to content, all of it certain.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._certain = {name: File(bytearray(data), len(data)) for name, data in files.items()}
        self._names = dict(self._certain)
        self._uncertain: list[tuple[str, str, File]] = []

    def apply(self, events: Iterable[Event]) -> None:
        """Take the events of a `Recorder`."""
        for event in events:
            getattr(self, f"_{event.kind}")(event)

    def after_power_loss(self, chance: Random) -> dict[str, bytes]:
        """Name to content of one of the states that may be left."""
        names = dict(self._certain)
        share = chance.choice([0.0, 0.5, 0.9, 1.0])
        for kind, name, file in self._uncertain:
            if chance.random() < share:
                _change(names, kind, name, file)
        return {name: file.survivor(chance) for name, file in names.items()}

    def _mark(self, event: Event) -> None:
        """A remark of the test changes nothing."""

    def _create(self, event: Event) -> None:
        if event.name not in self._names:  # the lock's file is opened by every writer
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
