"""Changes to an index that tests interrupt: what is there before, what is done, what is there after.

Whatever happens in between, an index must hold exactly the one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from word_encoder import WordEncoder

import engine.segment_builder
import formats.spool
from engine import Engine, IndexNotFound
from formats.directory import Directory
from formats.manifest import Manifest, latest_generation

Texts = dict[str, str]
OLD: Texts = {f"old{number}": f"old text{number}" for number in range(8)}
NEW: Texts = {f"new{number}": f"new text{number} of length {number % 13}" for number in range(16)}
DELETED = ("old1", "old3")
CHANGES = ("new", "overwrite", "commit", "delete")
AFTER: dict[str, Texts] = {
    "new": NEW,
    "overwrite": NEW,
    "commit": {doc_id: text for doc_id, text in OLD.items() if doc_id not in DELETED} | NEW,
    "delete": {doc_id: text for doc_id, text in OLD.items() if doc_id not in DELETED},
}


def options() -> dict[str, object]:
    """Of a build; the documents are few and short, and have all kinds of files all the same."""
    return {"encoder": WordEncoder(dim=16), "representation": "kmeans", "code_bytes": 4, "threads": 1}


def make_everything_small(patch: pytest.MonkeyPatch) -> None:
    """Lists and training with few documents, temporary files from the first kilobyte on."""
    patch.setattr(engine.segment_builder, "IVF_ROWS", 30)
    patch.setattr(formats.spool, "_MEMORY_BYTES", 1024)


def documents(texts: Texts) -> Iterator[dict[str, str]]:
    """As `build` and `add` take them."""
    return ({"id": doc_id, "text": text} for doc_id, text in texts.items())


def open_index(path: Path, *, writable: bool = False) -> Engine:
    """Open an index of these changes."""
    return Engine.open(path, writable=writable, encoder=WordEncoder(dim=16), threads=1)


def prepare(change: str, path: Path) -> None:
    """The state before: nothing, or an index of two segments, one of them with a deleted document."""
    if change == "new":
        return
    engine.build(documents({"gone": "gone", "old0": "old text0"}), path, **options())  # type: ignore[arg-type]
    with open_index(path, writable=True) as index:
        index.add(documents({doc_id: text for doc_id, text in OLD.items() if doc_id != "old0"}))
        index.delete(["gone"])
        index.commit()


def work(change: str, path: Path, new: Callable[[], Iterable[dict[str, str]]] = lambda: documents(NEW)) -> None:
    """Make the change; `new` gives the documents that are added."""
    if change in {"new", "overwrite"}:
        engine.build(new(), path, overwrite=True, **options())  # type: ignore[arg-type]
        return
    with open_index(path, writable=True) as index:
        if change == "commit":
            index.add(new())
        index.delete(DELETED)
        index.commit()


def content(path: Path) -> Texts:
    """All that the index holds, every byte of it checked; nothing where there is no index."""
    try:
        with Engine.open(path) as index:
            index.verify()
            found = {doc.id: doc.text for doc in index.get([*OLD, *NEW, "gone"])}
            assert len(found) == len(index), "documents that nobody added"
            return found
    except IndexNotFound:
        return {}


def state_of(change: str, path: Path) -> str:
    """Which of the two states is there; anything else is an error."""
    found = content(path)
    before = {} if change == "new" else OLD
    if found == before:
        return "old"
    assert found == AFTER[change], f"neither the old nor the new index: {sorted(found)}"
    return "new"


def stray_files(path: Path) -> set[str]:
    """Files that do not belong to the current generation."""
    if not path.exists():
        return set()
    try:
        known = Manifest.load(Directory(path), latest_generation(Directory(path))).file_names()
    except IndexNotFound:
        known = set()
    return {file.name for file in path.iterdir()} - known - {"write.lock"}


def check_recovery(change: str, path: Path, clean: bool = False) -> str:
    """Which state was left; then the same work succeeds, and nothing else remains.

    Args:
        change: what was interrupted.
        path: of the index.
        clean: whether nothing may be left over that nobody names.
    """
    state = state_of(change, path)
    if clean:
        assert not stray_files(path), f"left behind: {stray_files(path)}"
    work(change, path)
    assert state_of(change, path) == "new"
    assert not stray_files(path), f"left behind in the end: {stray_files(path)}"
    return state
