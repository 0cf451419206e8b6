"""Arguments with invalid values or paths raise errors of Quarry, and no others."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.indexes.changes import open_index, options, prepare
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import (
    AccessFailed,
    Engine,
    IndexExists,
    IndexNotFound,
    InvalidQuery,
    InvalidSetting,
    QuarryError,
)

ENCODER = WordEncoder(dim=16)
DOCS = [{"id": "a", "text": "one text"}]


class OfBytes:
    """A path of bytes."""

    def __fspath__(self) -> bytes:
        return b"bytes"


class OfNothing:
    """A path-like object whose path is not a string."""

    def __fspath__(self) -> int:
        return 5  # type: ignore[return-value]


class Unprintable:
    """An object whose `repr` fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


VALUES: list[Callable[[], object]] = [
    lambda: 5,
    lambda: -1,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: 1 << 80,
    lambda: 10**5000,
    lambda: "x",
    lambda: "\0",
    lambda: "\ud800",
    lambda: "9" * 400 + "TB",
    lambda: b"x",
    list,
    dict,
    lambda: [5],
    lambda: ["\ud800"],
    lambda: {"a": 1},
    lambda: {1: 2},
    lambda: np.array([1, 2]),
    lambda: np.array(["a", "b"]),
    lambda: np.array(1),
    lambda: memoryview(b"ab"),
    lambda: iter([5]),
    object,
    Unprintable,
    lambda: None,
    lambda: True,
    lambda: int,
]
PATHS: list[object] = [
    5, 1.5, None, True, b"bytes", [], {}, ("a",), object(), np.array([1]), OfBytes(), OfNothing(), Unprintable(),
    "nul\0", Path("nul\0"), "\ud800", "x" * 300, "x/" * 3000, "file", "file/below", "file/far/below", "loop",
    "loop/x", "dangling", "dangling/x", "/dev/null", "/dev/null/x",
]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an index, a file and broken links, and change into their folder."""
    prepare("commit", tmp_path / "index")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere/x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(what: str, call: Callable[[], object]) -> None:
    """Check that a call returns a result or raises an error of Quarry that can be printed."""
    message = ""
    try:
        result = call()
        if isinstance(result, Engine):
            result.close()
    except QuarryError as error:
        message = str(error)
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__}: {error}") from error
    assert len(message) < 20_000, what


def name_of(value: object) -> str:
    return f"{type(value).__name__} {value!r:.30}" if not isinstance(value, Unprintable | int) else "a value"


Value = Callable[[], object]
Calls = Iterator[tuple[str, Callable[[], object]]]


def openings(value: Value, world: Path) -> Calls:
    def opened(**given: object) -> object:
        return Engine.open(world / "index", **({"encoder": ENCODER} | given))  # type: ignore[arg-type]

    for name in ("backend", "encoder", "reranker", "threads", "memory", "device", "device_bytes", "refresh"):
        yield f"open {name}", lambda name=name: opened(**{name: value()})
    yield "open writable", lambda: None if value() is True else opened(writable=value())
    yield "open_encoder", lambda: engine.open_encoder(value())
    yield "open_encoder runtime", lambda: engine.open_encoder(runtime=value())
    yield "open_encoder lean", lambda: engine.open_encoder(lean=value())


def builds(value: Value, world: Path) -> Calls:
    def build(docs: object = DOCS, **given: object) -> object:
        return engine.build(docs, world / "new", **(options() | {"overwrite": True} | given))  # type: ignore[arg-type]

    names = ["encoder", "representation", "overwrite", "skip_invalid", "threads", "centroids", "code_bytes"]
    names += ["language", "k1", "b", "seed", "metric", "like", "dim", "id", "text", "title", "unheard_of"]
    for name in names if callable(value()) else [*names, "progress"]:
        yield f"build {name}", lambda name=name: build(**{name: value()})
    yield "build docs", lambda: build(value())
    sharded = options() | {"overwrite": True}
    yield "build shards", lambda: engine.build(DOCS, world / "shards", shards=value(), **sharded)  # type: ignore[arg-type]
    for kind in (engine.Pieces, engine.KMeans, engine.FirstM):
        yield kind.__name__, lambda kind=kind: kind(value())


def searches(value: Value, index: Engine) -> Calls:
    names = (
        "k",
        "mode",
        "candidates",
        "nprobe",
        "explain",
        "fusion",
        "dense_weight",
        "rerank",
        "filter",
        "partial",
        "timeout",
        "offset",
        "like",
        "min_relevance",
        "typos",
        "operators",
        "prefix",
        "unheard_of",
    )
    for mode in ("dense", "lexical", "hybrid"):
        yield f"search {mode}", lambda mode=mode: index.search(value(), mode=mode)
        for name in names:
            given = {"mode": mode, name: value()}
            yield f"search {mode} {name}", lambda given=given: index.search("a", **given)
    yield "search vector", lambda: index.search("a", vector=value())
    yield "search like", lambda: index.search(like=value())
    yield "search_vectors", lambda: index.search_vectors(value())
    yield "search_vectors, one", lambda: index.search_vectors([value()])
    for name in names:
        yield f"search_vectors {name}", lambda name=name: index.search_vectors(np.ones((1, 16)), **{name: value()})


def lookups(value: Value, index: Engine) -> Calls:
    for name in ("get", "count", "__contains__"):
        yield name, lambda name=name: getattr(index, name)(value())
        yield f"{name}, one", lambda name=name: getattr(index, name)([value()])
    for name in ("$eq", "$in", "$gte", "$exists", "$not", "$and"):
        yield f"count {name}", lambda name=name: index.count({"x": {name: value()}})
        yield f"count of {name}", lambda name=name: index.count({name: value()})


def listings(value: Value, index: Engine) -> Calls:
    for name in ("filter", "offset", "limit"):
        yield f"documents {name}", lambda name=name: list(index.documents(**{name: value()}))
        yield f"ids {name}", lambda name=name: list(index.ids(**{name: value()}))
    yield "facets", lambda: index.facets(value())
    for name in ("query", "filter", "limit"):
        yield f"facets {name}", lambda name=name: index.facets("year", **{name: value()})
    yield "get vectors", lambda: index.get(["old0"], vectors=value())
    yield "snapshot", lambda: index.snapshot(value())


def changes(value: Value, writer: Engine) -> Calls:
    yield "delete filter", lambda: writer.delete(filter=value())
    yield "update_metadata", lambda: writer.update_metadata(value(), {"a": 1})
    yield "update_metadata filter", lambda: writer.update_metadata(filter=value(), changes={"a": 1})
    yield "update_metadata changes", lambda: writer.update_metadata(["old0"], value())
    yield "update_metadata value", lambda: writer.update_metadata(["old0"], {"a": value()})
    yield "add_columns", lambda: writer.add_columns(value())
    for name in ("ids", "vectors", "texts", "titles", "metadata"):
        yield f"add_columns {name}", lambda name=name: writer.add_columns(**{"texts": ["a"], name: value()})
    yield "add vectors", lambda: writer.add([{"id": "q", "vectors": value()}])
    yield "add_indexes", lambda: writer.add_indexes(value())
    yield "add_indexes, one", lambda: writer.add_indexes([value()])
    yield "set_dense_weight", lambda: writer.set_dense_weight(value())
    yield "set_synonyms", lambda: writer.set_synonyms(value())
    yield "sync", lambda: writer.sync(value())
    for name in ("id", "text", "title"):
        yield f"add {name}=", lambda name=name: writer.add([{"a": "b"}], **{name: value()})
    for name in ("merge", "optimize"):
        yield (
            f"{name} progress",
            lambda name=name: None if callable(value()) else getattr(writer, name)(progress=value()),
        )
    for name in ("add", "delete"):
        yield name, lambda name=name: getattr(writer, name)(value())
        yield f"{name}, one", lambda name=name: getattr(writer, name)([value()])
    for name in ("id", "text", "title", "metadata"):
        fields = {"id": "q", "text": "a", name: value()}
        yield f"add {name}", lambda fields=fields: writer.add([fields])
        yield f"add a Document's {name}", lambda fields=fields: writer.add([engine.Document(**fields)])
    yield "merge retrain", lambda: writer.merge(retrain=value())


@pytest.mark.filterwarnings("ignore::engine.UnknownFieldWarning")
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_values(world: Path, number: int) -> None:
    value = VALUES[number]
    with open_index(world / "index") as index, open_index(world / "index", writable=True) as writer:
        for what, call in itertools.chain(
            openings(value, world),
            builds(value, world),
            searches(value, index),
            lookups(value, index),
            listings(value, index),
            changes(value, writer),
        ):
            check(f"{what} of {name_of(value())}", call)
        writer.rollback()


@pytest.mark.parametrize("number", range(len(PATHS)))
def test_paths(world: Path, number: int) -> None:
    path = PATHS[number]
    what = name_of(path)
    for given in ({}, {"overwrite": True}):
        with pytest.raises((InvalidSetting, IndexExists, AccessFailed)):
            engine.build(DOCS, path, **options() | given)
    for writable in (False, True):
        with pytest.raises((InvalidSetting, IndexNotFound, AccessFailed)):
            Engine.open(path, encoder=ENCODER, writable=writable)
    check(f"docs {what}", lambda: engine.build(path, world / "new", **options()))
    check(f"encoder {what}", lambda: Engine.open(world / "index", encoder=path))
    check(f"reranker {what}", lambda: Engine.open(world / "index", encoder=ENCODER, reranker=path))
    check(f"open_encoder {what}", lambda: engine.open_encoder(path))
    with open_index(world / "index", writable=True) as writer:
        check(f"add {what}", lambda: writer.add(path))
    assert (world / "file").read_text() == "mine"


def test_messages(world: Path) -> None:
    with pytest.raises(
        InvalidSetting, match=r"^path is not a path; expected a str or an os.PathLike of str; found int"
    ):
        Engine.open(5)
    with pytest.raises(
        InvalidSetting, match=r"path has a character that is not allowed in paths; found 'nul.x00'"
    ):
        engine.build(DOCS, "nul\0")
    with pytest.raises(
        AccessFailed, match="x: cannot be looked up; expected a shorter path; found File name too long"
    ):
        Engine.open("x" * 300)
    with pytest.raises(IndexExists, match="file: a file is in the way"):
        engine.build(DOCS, "file/far/below", **options())
    with pytest.raises(InvalidSetting, match=r"unknown backend; expected one of auto, exact, .*; found \[\]"):
        Engine.open("index", backend=[])
    with open_index(world / "index") as index:
        with pytest.raises(
            InvalidSetting, match=r"ids cannot be read; expected a str or an iterable of them.*; found int"
        ):
            index.get(5)
        with pytest.raises(InvalidQuery, match="queries are not texts"):
            index.search(np.array(1))
        with pytest.raises(InvalidSetting, match="explain is not a flag; expected True or False; found 'no'"):
            index.search("a", explain="no")


@pytest.mark.skipif(os.name == "nt", reason="a working directory cannot be deleted on this system")
def test_a_working_directory_that_is_gone(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (world / "gone").mkdir()
    monkeypatch.chdir(world / "gone")
    shutil.rmtree(world / "gone")
    for call in (
        lambda: engine.build(DOCS, "index", **options()),
        lambda: engine.build("docs.jsonl", world / "new", **options()),
        lambda: Engine.open("index"),
        lambda: engine.open_encoder("bundle"),
    ):
        with pytest.raises(InvalidSetting):
            call()
    with open_index(world / "index") as index:
        assert len(index.search("old text3")) > 0
