"""The files of an index in memory: what opens and reads thousands of damaged copies needs no disk for that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quarry.formats.container.directory import Directory, LoadedFile


class MemoryDirectory(Directory):
    """Files to be read only, of the names and bytes in a mapping.

    Whoever made a file of a bytearray may change it: readers that are opened afterwards read what it holds then.

    Args:
        path: of the folder that it stands for, for messages.
        files: content by name; files may be added and taken away.
    """

    def __init__(self, path: Path, files: Mapping[str, bytes | bytearray]) -> None:
        self.path = path
        self.files = files

    def names(self) -> list[str]:
        return sorted(self.files)

    def map(self, name: str) -> LoadedFile:  # type: ignore[override]  # it reads like one
        if name not in self.files:
            raise FileNotFoundError(2, "No such file or directory", str(self.path / name))
        return LoadedFile(self.path / name, memoryview(self.files[name]).toreadonly())  # type: ignore[arg-type]

    def load(self, name: str, max_bytes: int) -> LoadedFile:
        return self.map(name)
