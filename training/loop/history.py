"""What happened at every step of a run: JSON Lines that survive a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["History"]


class History:
    """The records of a run, one line for each step or validation.

    Args:
        path: of the file; made at the first record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: Mapping[str, object]) -> None:
        """Add a record, which has the member ``step``."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, object]]:
        """All records in order; a last line that was cut off is left out."""
        if not self._path.is_file():
            return []
        return [json.loads(line) for line in self._path.read_text("utf-8").split("\n")[:-1]]

    def rewind(self, step: int) -> None:
        """Drop the records of a step and those after it: they are done again."""
        kept = [record for record in self.records() if int(str(record["step"])) < step]
        partial = self._path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(record) + "\n" for record in kept), "utf-8")
        partial.replace(self._path)
