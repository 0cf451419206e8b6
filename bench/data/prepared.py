"""A collection made ready for measurements: texts, judgments, and vectors encoded once for all of them.

This module needs numpy alone, so that a peer's own environment can read what was prepared.
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
    """What `bench.data.prepare` wrote into a folder.

    Attributes:
        folder: if it is.
    """

    folder: Path

    def about(self) -> dict[str, object]:
        """Collection, split, encoder, and how many documents and queries there are."""
        return cast(dict[str, object], self._json("about"))

    def documents(self) -> tuple[list[str], list[str]]:
        """Ids and texts, in the order of the vectors."""
        return self._pairs("documents")

    def queries(self) -> tuple[list[str], list[str]]:
        """Ids and texts, in the order of `query_vectors`."""
        return self._pairs("queries")

    def qrels(self) -> dict[str, dict[str, int]]:
        """For each query id the judged documents and their scores; empty if nothing was judged."""
        return cast(dict[str, dict[str, int]], self._json("qrels"))

    def query_vectors(self) -> Floats:
        """(n_queries, dim) float32."""
        return cast(Floats, np.load(self.folder / "queries.npy"))

    def has(self, representation: str) -> bool:
        """Whether there are vectors of this representation (its key, see `bench.data.prepare`)."""
        return self._path(representation, "oracle").exists()  # the last file that is written

    def vectors(self, representation: str) -> tuple[Floats, Ints]:
        """(n_rows, dim) float32 mapped from the file, and (n_documents + 1,) int64: a document's first row."""
        offsets: Ints = np.load(self._path(representation, "offsets"))
        shape = (int(offsets[-1]), self.query_vectors().shape[1])
        return np.memmap(self.values_path(representation), np.float32, "r", shape=shape), offsets

    def oracle(self, representation: str) -> npt.NDArray[np.int32]:
        """(n_queries, 100 or fewer) int32: the best documents over these vectors by maximum, best first."""
        return cast(npt.NDArray[np.int32], np.load(self._path(representation, "oracle")))

    def values_path(self, representation: str) -> Path:
        """Where the vectors are, float32, row after row."""
        return self.folder / f"{representation}.f32"

    def save(self, representation: str, kind: str, values: npt.NDArray[np.generic]) -> None:
        """Write the array ``kind`` ("offsets" or "oracle") of a representation, whole or not at all."""
        path = self._path(representation, kind)
        unfinished = path.with_suffix(".tmp.npy")
        np.save(unfinished, values)
        unfinished.replace(path)

    def _path(self, representation: str, kind: str) -> Path:
        return self.folder / f"{representation}.{kind}.npy"

    def _json(self, name: str) -> object:
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def _pairs(self, name: str) -> tuple[list[str], list[str]]:
        entries = cast(dict[str, str], self._json(name))
        return list(entries), list(entries.values())


def write_json(path: Path, value: object) -> None:
    """Write JSON, whole or not at all."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(value), encoding="utf-8")
    unfinished.replace(path)


def cache_folder() -> Path:
    """Where vectors and environments are kept: QUARRY_BENCH_CACHE, or .cache/quarry-bench in the home folder."""
    named = os.environ.get("QUARRY_BENCH_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "quarry-bench"
