"""What a platform is tried with: `python tests/platforms/smoke.py`, which needs the installed package alone.

Every step prints its seconds. The program goes on after a step that fails, and exits with 1.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import quarry

TEXTS = {
    "bread": "Knead the dough until it is smooth and elastic, then let it rise under a cloth.",
    "volcano": "Ash from an eruption can stop flights over half a continent.",
    "chess": "A bishop never leaves the colour of the squares it starts on.",
    "moon": "Tides follow the pull of the moon on the water of the oceans.",
    "violin": "The bow of a violin is strung with hair from a horse's tail.",
    "bee": "Honey keeps for years because it holds so little water.",
}
DOCUMENTS = [{"id": name, "text": text, "metadata": {"n": n}} for n, (name, text) in enumerate(TEXTS.items())]
QUESTION = "what pulls the water of the sea?"
GERMAN = [{"id": "haus", "text": "Die alten Häuser am Fluss"}, {"id": "brot", "text": "Das Brot im Ofen"}]
DIM = 32
VECTORS = np.random.default_rng(7).integers(-127, 128, (600, DIM)).astype(np.float32)
SMALL = quarry.Thresholds(list_rows=200, graph_rows=200, training_rows=200, calibration_queries=32)
STEPS: list[Callable[[Path], None]] = []


def step(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """Add a step, which gets the folder of all steps; they use what those before have left there."""
    STEPS.append(function)
    return function


def build_vectors(path: Path, **settings: object) -> None:
    documents = ({"id": f"{n:03}", "text": f"number {n}", "vectors": row} for n, row in enumerate(VECTORS))
    quarry.build(documents, path, dim=DIM, threads=1, thresholds=SMALL, **settings)


def check_vectors(path: Path, **settings: object) -> None:
    """Search with vectors of the index, each of which is the nearest to itself."""
    with quarry.Engine.open(path, thresholds=SMALL, **settings) as index:
        found = [hits[0].id for hits in index.search_vectors(VECTORS[::50], 3)]
    assert found == [f"{n:03}" for n in range(0, len(VECTORS), 50)], found


@step
def build(folder: Path) -> None:
    quarry.build(DOCUMENTS, folder / "texts")


def check_mode(folder: Path, mode: str) -> None:
    with quarry.Engine.open(folder / "texts") as index:
        hits = index.search("tides of the moon", k=3, mode=mode)
    assert hits[0].id == "moon", hits


@step
def lexical(folder: Path) -> None:
    check_mode(folder, "lexical")


@step
def dense(folder: Path) -> None:
    check_mode(folder, "dense")


@step
def hybrid(folder: Path) -> None:
    check_mode(folder, "hybrid")


@step
def filters(folder: Path) -> None:
    with quarry.Engine.open(folder / "texts") as index:
        hits = index.search(QUESTION, filter={"n": {"$gte": 4}})
        assert sorted(hit.id for hit in hits) == ["bee", "violin"], hits


@step
def verify(folder: Path) -> None:
    with quarry.Engine.open(folder / "texts") as index:
        assert index.verify().n_documents == len(DOCUMENTS)


@step
def add(folder: Path) -> None:
    with quarry.Engine.open(folder / "texts", writable=True) as index:
        index.add([{"id": "sea", "text": "The moon pulls the water of the sea."}])
        index.commit()
        assert index.search(QUESTION, k=1)[0].id == "sea"


@step
def delete(folder: Path) -> None:
    with quarry.Engine.open(folder / "texts") as reader:
        with quarry.Engine.open(folder / "texts", writable=True) as index:
            index.delete("sea")
            index.commit()
        assert "sea" in reader
        assert reader.refresh()
        assert "sea" not in reader


@step
def merge(folder: Path) -> None:
    with quarry.Engine.open(folder / "texts", writable=True) as index:
        index.merge()
        assert index.verify().n_documents == len(DOCUMENTS)


@step
def sync(folder: Path) -> None:
    notes = folder / "notes"
    notes.mkdir()
    for name, text in TEXTS.items():
        (notes / f"{name} é.md").write_text(f"# {name}\n\n{text}\n", "utf-8")
    with quarry.Engine.open(folder / "synced", writable=True, create=True) as index:
        index.sync(notes)
        (notes / "bee é.md").unlink()
        (notes / "moon é.md").rename(notes / "tides.md")
        index.sync(notes)
        assert len(index) == len(TEXTS) - 1
        assert index.search(QUESTION, k=1)[0].id == "tides.md"


@step
def int8(folder: Path) -> None:
    build_vectors(folder / "int8")
    check_vectors(folder / "int8")


@step
def float16(folder: Path) -> None:
    build_vectors(folder / "float16", centroids="float16")
    check_vectors(folder / "float16")


@step
def codes_alone(folder: Path) -> None:
    build_vectors(folder / "codes", centroids="none")
    check_vectors(folder / "codes")


@step
def optimize(folder: Path) -> None:
    with quarry.Engine.open(folder / "int8", writable=True, thresholds=SMALL) as index:
        assert index.optimize() == 1


@step
def hnsw(folder: Path) -> None:
    check_vectors(folder / "int8", backend="hnsw")


@step
def other_backends(folder: Path) -> None:
    for backend in ("auto", "cpu_faiss", "exact", "scan"):
        check_vectors(folder / "int8", backend=backend)


@step
def l2(folder: Path) -> None:
    build_vectors(folder / "l2", metric="l2")
    check_vectors(folder / "l2")


@step
def shards(folder: Path) -> None:
    build_vectors(folder / "shards", shards=3)
    check_vectors(folder / "shards")


@step
def snapshot(folder: Path) -> None:
    with quarry.Engine.open(folder / "int8") as index:
        index.snapshot(folder / "snapshot")
    check_vectors(folder / "snapshot")


@step
def add_indexes(folder: Path) -> None:
    quarry.build([{"id": "more", "text": "Rooks and knights protect the king."}], folder / "more")
    with quarry.Engine.open(folder / "texts", writable=True) as index:
        index.add_indexes([folder / "more"])
        assert len(index) == len(DOCUMENTS) + 1


@step
def german(folder: Path) -> None:
    quarry.build(GERMAN, folder / "german", language="german")
    with quarry.Engine.open(folder / "german") as index:
        assert [hit.id for hit in index.search("ein altes Haus", mode="lexical")] == ["haus"]


@step
def command(folder: Path) -> None:
    arguments = ["search", str(folder / "texts"), QUESTION, "-k", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "quarry", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "moon" in done.stdout, done.stdout


def main() -> int:
    """Run all steps and return the exit status."""
    print(platform.platform(), platform.machine(), "Python", platform.python_version(), flush=True)
    failed = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for each in STEPS:
            start = time.perf_counter()
            try:
                each(Path(folder))
            except Exception:  # what is tried next may work
                traceback.print_exc()
                failed.append(each.__name__)
            print(f"{each.__name__:16} {time.perf_counter() - start:6.1f} s", flush=True)
    passed = len(STEPS) - len(failed)
    print(f"{passed} of {len(STEPS)} steps in {time.perf_counter() - started:.0f} s", *failed, flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
