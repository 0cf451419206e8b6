"""All interfaces have the options of `Engine`: asynchronous, Ray Serve, HTTP, the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import AsyncEngine, Engine
from quarry.engine.cli.commands import main
from quarry.engine.options import BuildKeywords, SearchKeywords

ELSEWHERE = {"docs", "path", "progress", "thresholds", "settings", "vectors", "dim", "k", "queries", "readers"}
"""Parameters that the command line has under other names, or that only programs can give."""


def public_methods(kind: type) -> dict[str, Callable[..., object]]:
    return {
        name: getattr(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and inspect.isfunction(getattr(kind, name))
    }


def lacking(method: Callable[..., object], sibling: Callable[..., object]) -> set[str]:
    """Return the parameters of a method that a sibling neither names nor passes on."""
    theirs = inspect.signature(sibling).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in theirs.values()):
        return set()
    mine = inspect.signature(method).parameters.values()
    return {each.name for each in mine if each.kind is not inspect.Parameter.VAR_KEYWORD} - set(theirs)


def served_kinds() -> list[type]:
    pytest.importorskip("ray")
    from quarry.distributed.routed_index import RoutedIndex
    from quarry.distributed.served_shards import ServedShards

    return [RoutedIndex, ServedShards]


def check_siblings(kind: type, least: int) -> None:
    own, theirs = public_methods(Engine), public_methods(kind)
    both = sorted(own.keys() & theirs.keys())
    assert len(both) >= least
    missing = {name: lacking(own[name], theirs[name]) for name in both}
    assert {name: each for name, each in missing.items() if each} == {}


def test_asynchronous_methods() -> None:
    check_siblings(AsyncEngine, 10)


@pytest.mark.filterwarnings("ignore")
def test_methods_of_served_indexes() -> None:
    for kind in served_kinds():
        check_siblings(kind, 5)


@pytest.fixture
def words(capsys: pytest.CaptureFixture[str]) -> Callable[[str], set[str]]:
    def options(command: str) -> set[str]:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        return {word.strip(",[]").removeprefix("--").replace("-", "_") for word in text.split() if "--" in word}

    return options


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("search", {*SearchKeywords.__annotations__, "encoder", "threads", "reranker"}),
        ("sync", set(inspect.signature(Engine.sync).parameters) - {"self", "folder", "readers", "progress"}),
        ("add", set(inspect.signature(Engine.add).parameters) - {"self", *ELSEWHERE}),
        ("delete", {"filter"}),
        ("build", set(inspect.signature(engine.build).parameters) - ELSEWHERE),
        ("build", {"language", "centroids", "code_bytes"} & set(BuildKeywords.__annotations__)),
        ("merge", {"retrain"}),
    ],
)
def test_the_command_line(command: str, wanted: set[str], words: Callable[[str], set[str]]) -> None:
    assert wanted - words(command) == set()


def test_options_of_the_command_line_reach_the_search(tmp_path, capsys) -> None:
    docs = [{"id": f"d{number}", "text": f"moon text {number}"} for number in range(30)]
    engine.build(docs, tmp_path / "index", threads=1, encoder=WordEncoder())
    index = str(tmp_path / "index")
    assert main(["search", index, "mooon", "--mode", "lexical", "--no-typos"]) == 1  # no hits
    assert "d1" not in capsys.readouterr().out
    assert main(["search", index, "moo", "--mode", "lexical", "--prefix"]) == 0
    assert main(["search", index, "mooon", "--mode", "lexical", "-k", "30"]) == 0
    assert "d1" in capsys.readouterr().out
    for words, problem in (
        (["--fusion", "no"], "unknown fusion"),
        (["--dense-weight", "2"], "dense_weight is out of range"),
        (["--candidates", "1"], "candidates is out of range"),
        (["--nprobe", "0"], "nprobe is out of range"),
        (["--rerank", "3"], "rerank is out of range"),
        (["--reranker", "nowhere"], "nowhere"),
    ):
        assert main(["search", index, "moon", *words]) == 1
        assert problem in capsys.readouterr().err
