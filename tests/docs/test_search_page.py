"""The page of all options of a search says what Python, the command line and HTTP have, and in which modes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from quarry import Engine, Pin, Thresholds, build
from quarry.engine.cli.commands import main
from quarry.engine.options import MODES, SearchKeywords, SearchOptions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "search.md"
HEAD = "| option | modes | command line | HTTP | meaning |"
OF_THE_INDEX = {"--encoder", "--threads", "--reranker"}
CODE = re.compile(r"`([^`]+)`")


def rows() -> list[list[str]]:
    """Return the cells of all options."""
    text, found, is_table = PAGE.read_text(encoding="utf-8"), [], False
    for line in text.splitlines():
        is_table = line.startswith("|") and (is_table or line == HEAD)
        if is_table and line != HEAD and "---" not in line:
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    assert len(found) > 20
    return found


def named(column: int) -> list[str]:
    """Return what is written as code in a column."""
    return [name for row in rows() for name in CODE.findall(row[column])]


def test_the_options_and_defaults_are_those_of_python() -> None:
    own = inspect.signature(Engine.search).parameters
    known = {name: own[name].default for name in ("queries", "k", "vector")}
    known |= {name: getattr(SearchOptions(), name) for name in SearchKeywords.__annotations__}
    written = [f"{name}={default!r}".replace("'", '"') for name, default in known.items()]
    assert sorted(named(0)) == sorted(written)


def test_the_flags_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    lines = re.findall(r"^  (-.*?)(?:  .*)?$", capsys.readouterr().out, re.MULTILINE)
    flags = {flag for line in lines for flag in re.findall(r"(?:^|, )(--?[a-z-]+)", line)}
    assert set(named(2)) == {*flags - {"-h", "--help"} - OF_THE_INDEX, "QUERY"}
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{flag}`" in text for flag in OF_THE_INDEX & flags)
    assert flags >= OF_THE_INDEX


def test_the_fields_are_those_of_requests() -> None:
    pytest.importorskip("starlette", reason="the server needs it")
    from quarry.server import Limits
    from quarry.server.searches import batch_schema, search_schema

    schemas = [schema(Limits()) for schema in (search_schema, batch_schema)]
    assert sorted(named(3)) == sorted({name for schema in schemas for name in schema["properties"]})


WORDS = ("moon", "tide", "chain", "bread", "river", "stone", "apple")
CHANGES: dict[str, tuple[str, object]] = {  # a query, and a value that changes its answer
    "operators": ("river -stone", True),
    "prefix": ("bread riv", True),
    "typos": ("brread rivver", False),
    "k": ("river", 3),
    "offset": ("river", 2),
    "filter": ("river", {"n": {"$lt": 9}}),
    "min_relevance": ("a driver for the printer of stone", 1.0),
    "unit": ("river", "passage"),
    "sort": ("river", "-n"),
    "boost": ("river", {"n": Pin([17])}),
    "group_by": ("river", "odd"),
    "fusion": ("river moon", "rrf"),
    "dense_weight": ("river moon", 0.05),
    "total": ("river", True),
    "explain": ("river", True),
    "candidates": ("river moon tide", 10),
    "nprobe": ("satellite", 1),
}
SAME = {"queries", "vector", "like", "mode", "group_size", "rerank", "context", "partial", "timeout"}
"""Whose effect other tests show, since they need another option, a reranker or shards, or replace the query."""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    few = Thresholds(list_rows=16, nlist=8, calibration_queries=8)
    docs = [
        {"id": f"d{n}", "text": f"The {a} and the {b} {n}.", "metadata": {"n": n, "odd": n % 2}}
        for n, a, b in ((n, WORDS[n % 7], WORDS[n * n % 5]) for n in range(200))
    ]
    path = tmp_path_factory.mktemp("options") / "index"
    build(docs, path, thresholds=few, threads=1, progress=False)
    with Engine.open(path, threads=1, thresholds=few, backend="cpu_faiss") as opened:
        yield opened


def test_every_option_is_tried_in_all_modes_or_named_as_one_that_is_not() -> None:
    assert {name.partition("=")[0] for name in named(0)} == CHANGES.keys() | SAME


@pytest.mark.parametrize("name", CHANGES)
def test_an_option_changes_answers_in_the_modes_of_the_page_and_in_no_other(index: Engine, name: str) -> None:
    query, value = CHANGES[name]
    row = next(row for row in rows() if row[0].startswith(f"`{name}="))
    others = {"k": 50, "candidates": 50} if name == "nprobe" else {}
    changed = set()
    for mode in MODES:
        usual = index.search(query, **others, mode=mode)
        other = index.search(query, **{**others, name: value}, mode=mode)
        if usual.to_dict() != other.to_dict():
            changed.add(mode)
    assert changed == (set(MODES) if row[1] == "all" else set(row[1].split(", ")))
