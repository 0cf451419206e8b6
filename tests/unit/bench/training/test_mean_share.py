"""The comparison of shares of the mean in scores by codes alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import mean_share
from bench.training.mean_share import SHARES, measure_shares


def test_the_mean_ranks_a_document_of_many_good_vectors_above_one_of_a_single_better_one() -> None:
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0], [0.9, 0.1], [0.9, 0.1], [0.0, 1.0]], np.float32)
    documents = dict.fromkeys(["single", "many", "other"], "text")
    collection = Collection("small", "test", documents, {"q": "text"}, {"q": {"many": 1}})
    queries = np.array([[1.0, 0.0]], np.float32)
    found = measure_shares(collection, list(documents), queries, vectors, np.array([0, 2, 4, 5]))
    assert list(found) == list(SHARES)
    assert found[0.0].rr_10 == 0.5
    assert found[0.2].rr_10 == 1


def test_the_command_records_every_share(
    coded_collection: Collection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["mean_share"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    monkeypatch.setitem(mean_share.COLLECTIONS, "cranfield", lambda: coded_collection)
    out = tmp_path / "results.jsonl"
    arguments = ["mean_share", "--on", "cranfield", "--code-bytes", "24", "--out", str(out)]
    assert main(arguments) == 0
    assert [each["share"] for each in read_records(out)] == list(SHARES)
