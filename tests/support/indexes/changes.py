"""Changes of an index that tests interrupt: the state before, the change, the state after.

After an interrupted change the index must be exactly in one of the two states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, IndexNotFound
from quarry.engine.indexer.commits.garbage import files_of
from quarry.engine.thresholds import MergeLimits, Thresholds
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.manifest import Manifest, find_latest_generation

Texts = dict[str, str]
OLD: Texts = {f"old{number}": f"old text{number}" for number in range(8)}
NEW: Texts = {f"new{number}": f"new text{number} of length {number % 13}" for number in range(16)}
DELETED = ("old1", "old3")
LEFT: Texts = {doc_id: text for doc_id, text in OLD.items() if doc_id not in DELETED}
AFTER: dict[str, Texts] = {
    "new": NEW,  # a first build
    "overwrite": NEW,  # a build that replaces an index
    "commit": LEFT | NEW,
    "delete": LEFT,  # only tombstones
    "background merge": LEFT | NEW,  # started by a commit
    "merge": OLD,
    "retrain": OLD,  # a merge with a new quantizer
    "graphs": OLD,  # files that may be missing
    "update": LEFT,  # of metadata, and tombstones
    "add indexes": OLD | {"new0": NEW["new0"], "old1": "other text1"},
}
CHANGES = tuple(AFTER)
UPDATED = ("old0", "old2", "old3")  # in two segments, one of them deleted too
OTHERS = "others"  # a folder in that of the index

SMALL = Thresholds(calibration_queries=64, list_rows=30, graph_rows=8, writing=WriterLimits(section_bytes=1024))
"""Lists, graphs and training with few documents, temporary files from the first kilobyte on."""

OFTEN = MergeLimits(width=3, dead_bytes=0, dead_share=0.05)
"""Merges in the background as soon as there are three segments, or anything is deleted."""

SMALL_MERGED_OFTEN = replace(SMALL, merging=OFTEN)


def options(thresholds: Thresholds = SMALL) -> dict[str, object]:
    """Return the arguments of a build; few and short documents have all kinds of files in spite of their size."""
    kind = {"encoder": WordEncoder(dim=16), "representation": "kmeans", "code_bytes": 4}
    return {**kind, "threads": 1, "thresholds": thresholds}


def documents(texts: Texts) -> Iterator[dict[str, str]]:
    """Yield documents for `build` and `add`."""
    return ({"id": doc_id, "text": text} for doc_id, text in texts.items())


def open_index(path: Path, *, writable: bool = False, thresholds: Thresholds = SMALL) -> Engine:
    """Open an index of these changes."""
    encoder = WordEncoder(dim=16)
    return Engine.open(path, writable=writable, encoder=encoder, threads=1, thresholds=thresholds)


def prepare(change: str, path: Path, thresholds: Thresholds = SMALL) -> None:
    """Make the state before: nothing, or an index of two segments or more, one with a deleted document."""
    if change == "new":
        return
    _prepare_index(change, path, thresholds)
    if change == "add indexes":
        for name, texts in others().items():
            engine.build(documents(texts), path / OTHERS / name, **options(thresholds))
        with open_index(path / OTHERS / "first", writable=True, thresholds=thresholds) as index:
            index.delete("old5")
            index.commit()


def others() -> dict[str, Texts]:
    """Return the documents of the index that is added; some are in the other one too, or are deleted in it."""
    return {"first": {"new0": NEW["new0"], "old1": "other text1", "old5": "deleted"}}


def check_others(path: Path) -> None:
    """Check that the indexes that were added are as they were."""
    for name, texts in others().items():
        with open_index(path / OTHERS / name) as index:
            index.verify()
            found = {doc.id: doc.text for doc in index.get(list(texts))}
        assert found == {doc_id: text for doc_id, text in texts.items() if text != "deleted"}
        assert not stray_files(path / OTHERS / name)


def _prepare_index(change: str, path: Path, thresholds: Thresholds) -> None:
    first = documents({"gone": "gone", "old0": "old text0"})
    engine.build(first, path, **options(thresholds))
    ids = sorted(OLD)[1:]
    n_commits = 6 if change == "background merge" else 2 if change in {"merge", "retrain"} else 1
    with open_index(path, writable=True, thresholds=thresholds) as index:
        for number in range(n_commits):
            index.add(documents({doc_id: OLD[doc_id] for doc_id in ids[number::n_commits]}))
            index.delete(["gone"])
            index.commit()


def work(change: str, path: Path, new: Callable[[], Iterable[dict[str, str]]] = lambda: documents(NEW)) -> None:
    """Make the change; `new` returns the documents to add."""
    if change in {"new", "overwrite"}:
        engine.build(new(), path, overwrite=True, **options())
        return
    with open_index(path, writable=True) as index:
        if change in {"merge", "retrain"}:
            index.merge(retrain=change == "retrain")
        elif change == "graphs":
            index.optimize()
        elif change == "add indexes":
            index.add_indexes([path / OTHERS / name for name in others()])
        else:
            with typed_errors():
                if change not in {"delete", "update"}:
                    index.add(new())
                if change == "update":
                    index.update_metadata(UPDATED, {"mark": "new"})
                index.delete(DELETED)
                index.commit()


@contextmanager
def typed_errors() -> Iterator[None]:
    """Check that a failed change raises an error of Quarry, whose type says whether the change was made."""
    try:
        yield
    except OSError as error:
        raise AssertionError("a change raised an error of the operating system") from error


def content(path: Path) -> Texts:
    """Return the texts of the index after verifying it; empty if there is no index."""
    try:
        with Engine.open(path) as index:
            index.verify()
            found = {doc.id: doc.text for doc in index.get([*OLD, *NEW, "gone"])}
            assert len(found) == len(index), "documents that were not added"
            return found
    except IndexNotFound:
        return {}


def state_of(change: str, path: Path) -> str:
    """Return which of the two states the index is in; any other state is an error."""
    found = content(path)
    if change == "update":
        with Engine.open(path) as index:
            marks = {doc.id for doc in index.documents() if doc.metadata == {"mark": "new"}}
        assert marks == (set() if found == OLD else {"old0", "old2"})
    before = {} if change == "new" else OLD
    if found == before != AFTER[change]:
        return "old"
    assert found == AFTER[change], f"neither the old nor the new index: {sorted(found)}"
    if before == AFTER[change]:
        return "new" if is_rewritten(change, path) else "old"
    return "new"


def is_rewritten(change: str, path: Path) -> bool:
    """Return whether a change that keeps the documents was made."""
    if change == "graphs":
        return any(file.suffix == ".hnsw" for file in path.iterdir())
    return len(newest(path).segments) == 1


def newest(path: Path) -> Manifest:
    """Return the current manifest."""
    directory = Directory(path)
    return Manifest.load(directory, find_latest_generation(directory))


def stray_files(path: Path) -> set[str]:
    """Return the files that do not belong to the current generation."""
    if not path.exists():
        return set()
    try:
        known = files_of(newest(path))
    except IndexNotFound:
        known = set()
    return {file.name for file in path.iterdir()} - known - {"write.lock", OTHERS}


def check_recovery(change: str, path: Path, clean: bool = False) -> str:
    """Return the state after an interruption; check that the change then succeeds and leaves no orphan files.

    Args:
        change: the interrupted change.
        path: of the index.
        clean: whether a change that was not made must not have left orphan files.
    """
    state = state_of(change, path)
    if clean and state == "old":
        assert not stray_files(path), f"left behind: {stray_files(path)}"
    work(change, path)
    assert state_of(change, path) == "new"
    assert not stray_files(path), f"left behind in the end: {stray_files(path)}"
    if change == "add indexes":
        check_others(path)
    return state
