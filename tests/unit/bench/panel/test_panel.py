"""The panel: one table of many collections, and the rule by which features of ranking stay."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from bench.__main__ import COMMANDS, main, make_parser
from bench.data.collections import Collection, CollectionNotFound
from bench.harness.records import read_records
from bench.panel.collections import Member, make_identifiers, make_limit
from bench.panel.command import add_arguments, run_panel
from bench.panel.ensembles import run_ensembles
from bench.panel.searches import SEARCHES
from bench.panel.statistics import judge
from quarry import Engine, build


@pytest.fixture
def measure(coded_collection: Collection, tmp_path: Path) -> Callable[..., int]:
    """Return the command with arguments, for a panel of a small collection and a missing one."""
    for module in COMMANDS["panel"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")

    def missing() -> Collection:
        raise CollectionNotFound("no folder")

    members = {"small": Member(lambda: coded_collection, "choosing"), "missing": Member(missing, "comparing")}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    folders = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "results.jsonl")]
    return lambda *words: run_panel(parser.parse_args([*folders, *words]), members, WordEncoder(dim=48))


def test_every_search_is_measured_once(
    measure: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert measure() == measure("small") == 0
    records = read_records(tmp_path / "results.jsonl")
    assert [each["search"] for each in records] == list(SEARCHES)
    assert {each["mean"] for each in records if each["search"] in ("dense", "hybrid")} == {1}
    printed = capsys.readouterr().out
    assert "missing: skipped, its data is missing: no folder" in printed
    assert measure("missing") == measure("unknown") == main(["panel", "unknown"]) == 1


def test_a_changed_constant_is_judged_by_the_rule(
    measure: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["small", "--searches", "hybrid"]
    assert measure(*few) == 0
    changes = ["dense_weight=.5", "engine.search.fusion._RANK_OFFSET=30"]
    assert measure(*few, "--set", *changes, "--label", "changed", "--against", "default") == 0
    assert "the rule: fails" in capsys.readouterr().out  # nothing rises


def test_ensembles_of_encoders(
    coded_collection: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ir_measures", reason="the measurement needs ir_measures")
    last_found = dict(reversed(coded_collection.documents.items()))
    panel = {"med": Member(lambda: replace(coded_collection, documents=last_found), "choosing")}
    out = tmp_path / "results.jsonl"
    folders = ["--cache", str(tmp_path / "cache"), "--out", str(out)]
    arguments = make_parser("ensembles").parse_args(["fine", "coarse", "--collections", "med", *folders])
    encoders = [WordEncoder(dim=48), WordEncoder(dim=1)]  # one dimension tells no texts apart
    assert run_ensembles(arguments, panel, encoders) == 0
    records: list[dict[str, Any]] = read_records(out)
    means = {tuple(each["shares"]): each["mean"] for each in records}
    assert list(means) == [(0, 1), (0.25, 0.75), (0.5, 0.5), (0.75, 0.25), (1, 0)]
    assert means[0, 1] < means[0.5, 0.5] == means[1, 0] == 1
    assert "against (1.0, 0.0)" in capsys.readouterr().out


def test_the_rule() -> None:
    before = {name: np.full(50, 0.5) for name in ("one", "two", "apart")}
    better = judge(before, {**before, "one": np.full(50, 0.51)}, ["one", "two"])
    assert better.stays
    assert better.mean.mean == pytest.approx(0.005)
    assert not judge(before, {**before, "one": np.full(50, 0.505)}, ["one", "two"]).stays
    falls = judge(before, {**before, "one": np.full(50, 0.6), "apart": np.full(50, 0.499)}, ["one", "two"])
    assert (falls.falls, falls.stays) == (["apart"], False)


def test_limit_has_every_pair_of_few_documents() -> None:
    things = [f"{letter}{number}s" for number in range(10) for letter in "abcdefg"]
    collection = make_limit(things, 30, 10)
    pairs = {tuple(judged) for judged in collection.qrels.values()}
    assert len(pairs) == 10
    assert len({document for pair in pairs for document in pair}) == 5
    for query, text in collection.queries.items():
        thing = text.removeprefix("Who likes ").removesuffix("?")
        found = {name for name, document in collection.documents.items() if thing in document}
        assert found == set(collection.qrels[query])
    with pytest.raises(ValueError, match="10 queries need more than 56 things"):
        make_limit(things[:50], 30, 10)


def test_an_identifier_in_a_long_document_ranks_it_first(tmp_path: Path) -> None:
    """Of 1,000 generated cases bench/README.md has the share; in these 30 all are first."""
    collection = make_identifiers([f"Raise an error when the {word} times out." for word in WORDS], 4, 30, 30)
    documents = [{"id": name, "text": text} for name, text in collection.documents.items()]
    build(documents, tmp_path / "index")
    with Engine.open(tmp_path / "index") as index:
        found = index.search(list(collection.queries.values()), k=1)
    assert [hits[0].id for hits in found] == [name for judged in collection.qrels.values() for name in judged]


WORDS = ("gateway", "payment", "session", "upload", "socket", "search", "index", "mail", "cache", "token")
