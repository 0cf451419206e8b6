"""All public calls about an index, each with the files it needs in one folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from support.indexes.changes import LEFT, NEW, OLD, documents, open_index, options, prepare, stray_files
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, QuarryError

Call = Callable[[Path], object]

MODES = ("dense", "lexical", "hybrid")


def make_world(world: Path) -> None:
    """Create an index with all kinds of files, files of documents, and an empty folder."""
    prepare("commit", world / "index")
    with open_index(world / "index", writable=True) as index:
        index.optimize()
    shutil.copytree(world / "index", world / "other")
    (world / "empty").mkdir()
    (world / "docs.jsonl").write_text('{"id": "new0", "text": "of a file"}\n')
    (world / "beir").mkdir()
    (world / "beir" / "corpus.jsonl").write_text('{"_id": "new0", "text": "of a folder"}\n')


def _reading(use: Callable[[Engine], object]) -> Call:
    def call(world: Path) -> object:
        with open_index(world / "index") as index:
            return use(index)

    return call


def _writing(use: Callable[[Engine], object]) -> Call:
    def call(world: Path) -> object:
        with open_index(world / "index", writable=True) as index:
            return use(index)

    return call


def _search_graphs(world: Path) -> object:
    with Engine.open(world / "index", backend="hnsw", encoder=WordEncoder(dim=16)) as index:
        return index.search("old text3", mode="dense")


def _change(index: Engine) -> None:
    index.add(documents(NEW))
    index.delete(["old1", "old3"])
    index.commit()


def _delete_by_filter(index: Engine) -> None:
    index.delete(filter={"id": {"$prefix": "old"}})
    index.rollback()


def _add_file(index: Engine, name: str, world: Path) -> None:
    index.add(world / name)
    index.rollback()


def _build(source: str | None, target: str, *, overwrite: bool = False) -> Call:
    def call(world: Path) -> object:
        given = documents(NEW) if source is None else world / source
        return engine.build(given, world / target, overwrite=overwrite, **options())  # type: ignore[arg-type]

    return call


READING: dict[str, Call] = {
    "len": _reading(len),
    **{
        f"search {mode}": _reading(lambda index, mode=mode: index.search("old text3", mode=mode)) for mode in MODES
    },
    "explain": _reading(lambda index: index.search("old text3", explain=True)),
    "search quoted": _reading(lambda index: index.search('"old text3" te*')),
    "search like": _reading(lambda index: index.search(like="old0")),
    "search graphs": _search_graphs,
    "search vectors": _reading(lambda index: index.search_vectors([[1.0] * 16])),
    "get": _reading(lambda index: index.get(["old0"])),
    "in": _reading(lambda index: "old0" in index),
    "count": _reading(lambda index: index.count({"year": 2020})),
    "documents": _reading(list),
    "ids": _reading(lambda index: list(index.ids(filter={"year": 2020}))),
    "facets": _reading(lambda index: index.facets("year", query="old")),
    "stats": _reading(lambda index: index.stats()),
    "verify": _reading(lambda index: index.verify()),
    "refresh": _reading(lambda index: index.refresh()),
}
WRITING: dict[str, Call] = {
    "open to write": _writing(len),
    "change": _writing(_change),
    "merge": _writing(lambda index: index.merge()),
    "retrain": _writing(lambda index: index.merge(retrain=True)),
    "optimize": _writing(lambda index: index.optimize()),
    "delete by filter": _writing(_delete_by_filter),
    "weight": _writing(lambda index: index.set_dense_weight(0.4)),
    "synonyms": _writing(lambda index: index.set_synonyms({"tv": ["television"]})),
    "rollback": _writing(lambda index: index.rollback()),
    "overwrite": _build(None, "index", overwrite=True),
}
OTHERS: dict[str, Call] = {
    "build over an index": _build(None, "index"),
    "build": _build(None, "new"),
    "build in a new folder": _build(None, "above/new"),
    "build in an empty folder": _build(None, "empty"),
    "build of a file": _build("docs.jsonl", "new"),
    "build of a folder": _build("beir", "new"),
    "add a file": lambda world: _writing(lambda index: _add_file(index, "docs.jsonl", world))(world),
    "add a folder": lambda world: _writing(lambda index: _add_file(index, "beir", world))(world),
}
CALLS = READING | WRITING | OTHERS


def attempt(name: str, world: Path) -> QuarryError | None:
    """Make a call; return its error if it is a `QuarryError`, and raise any other."""
    try:
        CALLS[name](world)
    except QuarryError as error:
        return error
    return None


def check_world(name: str, world: Path, error: QuarryError | None) -> None:
    """Check that the index is in a state that the call may leave, and that it can still be changed."""
    before, after = OLD, {"change": LEFT | NEW, "overwrite": NEW}.get(name, OLD)
    with open_index(world / "index") as index:
        index.verify()
        found = {doc.id: doc.text for doc in index.get([*OLD, *NEW, "gone"])}
        assert len(index) == len(found)
    assert found == after if error is None else found in (before, after), f"{name}: {error!r}"
    with open_index(world / "index", writable=True) as index:
        index.add([{"id": "last", "text": "text"}])
        index.commit()
    assert not stray_files(world / "index"), f"{name}: {error!r}"
