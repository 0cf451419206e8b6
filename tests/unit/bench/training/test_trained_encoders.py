"""The comparison of trained encoders: all ways to search."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import encoders
from quarry.engine import open_encoder
from quarry.engine.bundled import DEFAULT_NAME

SEARCHES = ["dense", "hybrid", "codes 24", "hybrid codes 24", "codes 8", "hybrid codes 8", "one vector"]


@pytest.fixture
def collection(small_corpus: list[dict[str, object]]) -> Collection:
    """Return a collection in which every fourth document is also a query."""
    documents = {str(each["id"]): str(each["text"]) for each in small_corpus}
    first = [str(each["id"]) for each in small_corpus[::4]]
    queries = {f"q{name}": documents[name] for name in first}
    return Collection("small", "test", documents, queries, {f"q{name}": {name: 1} for name in first})


def test_every_way_to_search_is_measured(collection: Collection) -> None:
    found = {search: quality for search, _, quality in encoders.measure(collection, open_encoder())}
    assert list(found) == SEARCHES
    assert found["dense"].ndcg_10 == found["one vector"].ndcg_10 == 1
    assert found["hybrid"].ndcg_10 == 1


def test_the_command_records_every_way_to_search(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["trained_encoders"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    monkeypatch.setitem(encoders.COLLECTIONS, "cranfield", lambda: collection)
    out = tmp_path / "results.jsonl"
    arguments = ["trained_encoders", "bundled", "--on", "cranfield", "--seeds", "0", "1", "--out", str(out)]
    assert main(arguments) == 0
    records = read_records(out)
    measured = [(each["search"], each["seed"]) for each in records]
    assert sorted(measured) == sorted(
        [(each, 0) for each in SEARCHES] + [(each, 1) for each in SEARCHES if each.startswith("codes")]
    )
    assert records[0]["ndcg_10"] == 1
    assert records[0]["encoder"] == DEFAULT_NAME
