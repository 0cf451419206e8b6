"""A collection prepared for measurements: texts, judgments, and vectors that were encoded once.

This module needs only numpy, so that it can be used in another library's environment.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

__all__ = ["Prepared", "cache_folder", "write_json"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Prepared:
    """A folder that `bench.data.prepare` wrote.

    Attributes:
        folder: its path.
    """

    folder: Path

    def about(self) -> dict[str, object]:
        """Return collection, split, encoder and the numbers of documents and queries."""
        return cast(dict[str, object], self._read_json("about"))

    def documents(self) -> tuple[list[str], list[str]]:
        """Return ids and texts, in the order of the vectors."""
        return self._read_texts("documents")

    def queries(self) -> tuple[list[str], list[str]]:
        """Return ids and texts, in the order of `query_vectors`."""
        return self._read_texts("queries")

    def qrels(self) -> dict[str, dict[str, int]]:
        """Return ids and scores of the judged documents by query id; empty without judgments."""
        return cast(dict[str, dict[str, int]], self._read_json("qrels"))

    def query_vectors(self) -> Floats:
        """Return the query vectors, (n_queries, dim) float32."""
        return cast(Floats, np.load(self.folder / "queries.npy"))

    def has(self, representation: str) -> bool:
        """Return whether there are vectors of a representation, given its key (`bench.data.prepare`)."""
        return self._path(representation, "oracle").exists()  # written last

    def vectors(self, representation: str) -> tuple[Floats, Ints]:
        """Return vectors, (n_rows, dim) float32, memory-mapped, and first rows of documents, (n + 1,) int64."""
        offsets: Ints = np.load(self._path(representation, "offsets"))
        shape = (int(offsets[-1]), self.query_vectors().shape[1])
        return np.memmap(self.values_path(representation), np.float32, "r", shape=shape), offsets

    def oracle(self, representation: str) -> npt.NDArray[np.int32]:
        """Return the documents of an exact search by maximum, best first: (n_queries, up to 100) int32."""
        return cast(npt.NDArray[np.int32], np.load(self._path(representation, "oracle")))

    def values_path(self, representation: str) -> Path:
        """Return the path of the vectors, float32 in row order."""
        return self.folder / f"{representation}.f32"

    def save(self, representation: str, kind: str, values: npt.NDArray[np.generic]) -> None:
        """Write the array ``kind`` ("offsets" or "oracle") of a representation atomically."""
        path = self._path(representation, kind)
        unfinished = path.with_suffix(".tmp.npy")
        np.save(unfinished, values)
        unfinished.replace(path)

    def _path(self, representation: str, kind: str) -> Path:
        return self.folder / f"{representation}.{kind}.npy"

    def _read_json(self, name: str) -> object:
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def _read_texts(self, name: str) -> tuple[list[str], list[str]]:
        entries = cast(dict[str, str], self._read_json(name))
        return list(entries), list(entries.values())


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(value), encoding="utf-8")
    unfinished.replace(path)


def cache_folder() -> Path:
    """Return the folder QUARRY_BENCH_CACHE, or .cache/quarry-bench in the home folder."""
    named = os.environ.get("QUARRY_BENCH_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "quarry-bench"
