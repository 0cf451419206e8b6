"""The comparison of hybrid searches with the proximity of terms and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import proximity
from bench.training.proximity import WEIGHTS


def test_the_command_records_every_weight_with_proximity_and_without(
    small_corpus: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["proximity"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    documents = {str(each["id"]): str(each["text"]) for each in small_corpus}
    name = str(small_corpus[0]["id"])
    collection = Collection("small", "test", documents, {"q": documents[name]}, {"q": {name: 1}})
    monkeypatch.setitem(proximity._COLLECTIONS, "cranfield", lambda: collection)
    out = tmp_path / "results.jsonl"
    assert main(["proximity", "--on", "cranfield", "--out", str(out)]) == 0
    found = read_records(out)
    ways = [(has_proximity, weight) for has_proximity in (False, True) for weight in WEIGHTS]
    assert [(each["proximity"], each["dense_weight"]) for each in found] == ways
    assert all(each["rr_10"] == 1 for each in found)
