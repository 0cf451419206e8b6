"""The files of an index in a folder, with a call before each file is opened and after each listing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from quarry.formats.container.directory import Directory, LoadedFile, MappedFile


class WatchedDirectory(Directory):
    """Calls a function with the name of each file before it is opened, and with "" after files were listed."""

    def __init__(self, path: Path, watch: Callable[[str], None]) -> None:
        super().__init__(path)
        self._watch = watch

    def names(self) -> list[str]:
        found = super().names()
        self._watch("")
        return found

    def map(self, name: str) -> MappedFile:
        self._watch(name)
        return super().map(name)

    def load(self, name: str, max_bytes: int) -> LoadedFile:
        self._watch(name)
        return super().load(name, max_bytes)
