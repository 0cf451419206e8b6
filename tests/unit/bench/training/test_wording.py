"""The comparison of hybrid searches with the wording of texts and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import wording
from bench.training.wording import WEIGHTS


def test_the_command_records_every_weight_with_wording_and_without(
    small_corpus: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["wording"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    documents = {str(each["id"]): str(each["text"]) for each in small_corpus}
    name = str(small_corpus[0]["id"])
    collection = Collection("small", "test", documents, {"q": documents[name]}, {"q": {name: 1}})
    monkeypatch.setitem(wording._COLLECTIONS, "cranfield", lambda: collection)
    out = tmp_path / "results.jsonl"
    assert main(["wording", "--on", "cranfield", "--out", str(out)]) == 0
    found = read_records(out)
    ways = [(has_wording, weight) for has_wording in (False, True) for weight in WEIGHTS]
    assert [(each["wording"], each["dense_weight"]) for each in found] == ways
    assert all(each["rr_10"] == 1 for each in found)
