"""Writes the golden indexes of given vectors, one for each metric: `python tests/golden/make_metrics.py`.

They cover what `make.py` does not: documents with given vectors, no encoder, a metric, and a dense weight set for
the index. The folders are committed once and never written again.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Literal, get_args

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from golden.make import QUERIES, documents, the_same_names  # noqa: E402

from quarry import engine  # noqa: E402
from quarry.engine import Engine  # noqa: E402
from quarry.formats.write_lock import LOCK_NAME  # noqa: E402

Metric = Literal["ip", "cosine", "l2"]
FOLDER = HERE / "metrics"
METRICS: tuple[Metric, ...] = get_args(Metric)
DIM = 12
DENSE_WEIGHT = 0.35
_N_DOCS = 24


def query_vectors() -> np.ndarray:
    """Return the vectors of the queries, (n_queries, 12) float32, small integers."""
    return np.random.default_rng(1).integers(-9, 10, (len(QUERIES), DIM)).astype(np.float32)


def make(path: Path, metric: Metric) -> None:
    """Build an index of documents with one to four vectors each."""
    rng = np.random.default_rng(0)
    given = [
        document | {"vectors": rng.integers(-9, 10, (1 + number % 4, DIM)).astype(np.float32)}
        for number, document in enumerate(documents(_N_DOCS, 0))
    ]
    with the_same_names():
        engine.build(given, path, dim=DIM, metric=metric, threads=1, seed=7)
        with Engine.open(path, writable=True, threads=1) as index:
            index.delete([str(given[3]["id"])])
            index.commit()
            index.set_dense_weight(DENSE_WEIGHT)
    (path / LOCK_NAME).unlink()


def answers(path: Path) -> dict[str, object]:
    """Return the statistics of the index, and its answers to vectors, to texts and to both."""
    with Engine.open(path, threads=1) as index:
        stats = index.stats()
        searches = []
        for text, vector in zip(QUERIES, query_vectors(), strict=True):
            for name, hits in (
                ("vector", index.search(vector=vector, k=5)),
                ("text", index.search(text, k=5, mode="lexical")),
                ("both", index.search(text, vector=vector, k=5)),
            ):
                searches.append({"query": text, "by": name, "hits": [[hit.id, hit.score] for hit in hits]})
        return {
            "n_documents": len(index),
            "metric": stats["metric"],
            "dim": stats["dim"],
            "dense_weight": stats["dense_weight"],
            "searches": searches,
        }


if __name__ == "__main__":
    for metric in METRICS:
        folder = FOLDER / metric
        shutil.rmtree(folder, ignore_errors=True)
        make(folder / "index", metric)
        expected = json.dumps(answers(folder / "index"), indent=1, ensure_ascii=False, sort_keys=True)
        (folder / "expected.json").write_text(expected + "\n", encoding="utf-8")
