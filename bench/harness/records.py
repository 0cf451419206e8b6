"""Reads and writes raw results: JSON Lines, one measurement per line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from bench.harness.environment import describe_environment

__all__ = ["RUNS", "Record", "add_out", "append_record", "append_result", "read_records", "read_results"]

Record = dict[str, object]

RUNS = Path("bench/results/runs")
"""Default folder for results, relative to the root of a checkout; git ignores it."""


def add_out(parser: argparse.ArgumentParser, name: str, *, is_folder: bool = False) -> None:
    """Declare the option ``--out`` of a measurement.

    Args:
        parser: the parser of the measurement's arguments.
        name: the measurement's name, which is the default name of its file.
        is_folder: whether it writes several files.
    """
    default = RUNS if is_folder else RUNS / f"{name}.jsonl"
    what = "folder for results" if is_folder else "JSON Lines, appended to the file"
    parser.add_argument("--out", type=Path, default=default, help=f"{what} (default: %(default)s)")


def append_record(path: Path, record: Mapping[str, object]) -> None:
    """Append one line, after removing an incomplete last line; the folder is created if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_unfinished(path)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True) + "\n")


def append_result(path: Path, record: Mapping[str, object]) -> None:
    """Append a measurement with the description of the environment."""
    append_record(path, {**record, **describe_environment()})


def read_records(path: Path) -> list[Record]:
    """Read all records; a missing file has none, and an incomplete last line is ignored.

    Raises:
        ValueError: a line before the last is not JSON.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    whole = lines[:-1]  # what follows the last line break is incomplete
    return [json.loads(line) for line in whole if line]


def read_results(folder: Path, name: str) -> list[Record]:
    """Return the results of a measurement in a folder: ``name.jsonl`` and ``name_COLLECTION.jsonl``."""
    paths = [folder / f"{name}.jsonl", *sorted(folder.glob(f"{name}_*.jsonl"))]
    return [record for path in paths for record in read_records(path)]


def _drop_unfinished(path: Path) -> None:
    """Remove what follows the last line break."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            path.write_bytes(content[:whole])
