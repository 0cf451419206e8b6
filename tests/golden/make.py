"""Writes the golden index of the current version of the file format: `python tests/golden/make.py`.

The folder `tests/golden/<major>.<minor>/` gets a tiny index with all features of the format, and `expected.json`,
its contents and answers. The folder of a version is committed once and never written again.
"""

from __future__ import annotations

import json
import random
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from support.indexes.word_encoder import Vector, WordEncoder  # noqa: E402

from quarry import engine  # noqa: E402
from quarry.engine import Engine, Pieces  # noqa: E402
from quarry.engine.thresholds import Thresholds  # noqa: E402
from quarry.formats.container.layout import VERSION  # noqa: E402
from quarry.formats.write_lock import LOCK_NAME  # noqa: E402

FOLDER = HERE / f"{VERSION[0]}.{VERSION[1]}"
SUBJECTS = ("bread", "volcano", "chess", "moon", "violin", "bridge", "tea", "printing")
WORDS = [
    "old",
    "new",
    "small",
    "quiet",
    "bright",
    "slow",
    "first",
    "last",
    "warm",
    "round",
    "heavy",
    "simple",
    "rare",
    "common",
    "narrow",
]
QUERIES = ("moon quiet", "the slow bridge", "tea heavy warm printing", "nothing of this")
MODES = ("dense", "lexical", "hybrid")
FILTERS: tuple[dict[str, object] | None, ...] = (
    None,
    {"subject": {"$in": ["moon", "tea"]}, "number": {"$gte": 12}},
)


@dataclass(frozen=True)
class GoldenEncoder(WordEncoder):
    """Encodes words as vectors of small integers, whose sums are the same on every machine."""

    dim: int = 16
    normalize: bool = False
    name: str = "golden"
    _vectors: dict[str, Vector] = field(default_factory=dict, repr=False, compare=False)

    def vector(self, word: str) -> Vector:
        """Return (16,) float32, integers from -128 to 127."""
        digest = xxhash.xxh3_128_digest(word.encode())
        return np.frombuffer(digest, np.int8).astype(np.float32)


def documents(n: int, first: int) -> Iterator[dict[str, object]]:
    """Yield documents with unusual ids, titles, metadata and one to four pieces."""
    for number in range(first, first + n):
        chance = random.Random(number)
        subject = SUBJECTS[number % len(SUBJECTS)]
        sentences = [
            " ".join(chance.choices([*WORDS, subject], k=chance.randint(4, 9))) + "."
            for _ in range(1 + number % 4)
        ]
        yield {
            "id": f"{subject}/{number} é 文",
            "title": subject.title() if number % 2 else "",
            "text": " ".join([*sentences, f"The end of number {number}, on {subject}."]),
            "metadata": {"subject": subject, "number": number, "even": number % 2 == 0},
        }


@contextmanager
def the_same_names() -> Iterator[None]:
    """Generate file ids from a fixed seed."""
    chance = random.Random("golden")
    kept = secrets.token_bytes
    secrets.token_bytes = lambda n=16: chance.randbytes(n)
    try:
        yield
    finally:
        secrets.token_bytes = kept


def make(path: Path) -> None:
    """Build an index of a segment with lists and one without, both with deleted documents."""
    encoder, small = GoldenEncoder(), Thresholds(calibration_queries=64, list_rows=100)
    with the_same_names():
        how = {"representation": Pieces(8), "code_bytes": 4, "threads": 1, "seed": 7, "thresholds": small}
        engine.build(documents(60, 0), path, encoder=encoder, passage_words=12, **how)  # type: ignore[arg-type]
        with Engine.open(path, writable=True, encoder=encoder, threads=1, thresholds=small) as index:
            index.add(documents(6, 58))
            index.delete([document["id"] for document in documents(2, 10)])  # type: ignore[misc]
            index.commit()
            index.delete([document["id"] for document in documents(1, 61)])  # type: ignore[misc]
            index.commit()
    (path / LOCK_NAME).unlink()


def answers(path: Path) -> dict[str, object]:
    """Return the contents of the index, and its answers to a few queries in every mode."""
    with Engine.open(path, encoder=GoldenEncoder(), threads=1) as index:
        ids = [str(document["id"]) for document in documents(64, 0)]
        return {
            "n_documents": len(index),
            "generation": index.stats()["generation"],
            "documents": {
                document.id: [document.title, document.text, dict(document.metadata)]
                for document in index.get(ids)
            },
            "searches": [
                {
                    "query": query,
                    "mode": mode,
                    "filter": condition,
                    "hits": [
                        [hit.id, hit.score, [match.text for match in hit.matches], dict(hit.terms)]
                        for hit in index.search(query, k=5, mode=mode, filter=condition, explain=True)
                    ],
                }
                for query in QUERIES
                for mode in MODES
                for condition in FILTERS
            ],
        }


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    make(FOLDER / "index")
    expected = json.dumps(answers(FOLDER / "index"), indent=1, ensure_ascii=False, sort_keys=True)
    (FOLDER / "expected.json").write_text(expected + "\n", encoding="utf-8")
