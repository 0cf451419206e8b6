"""The measurement of the GPU backend, on torch's CPU device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.records import read_records

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_everything_runs_and_every_check_holds(tmp_path: Path) -> None:
    assert main(["gpu", "--device", "cpu", "--quick", "--out", str(tmp_path / "gpu.jsonl")]) == 0
    records = read_records(tmp_path / "gpu.jsonl")
    kinds = {record["what"] for record in records}
    assert {"check scan", "check lists", "copy", "matrix product", "upload", "open", "stage 1", "lists"} <= kinds
    assert {"check queries stay", "check bad query", "check centroids"} <= kinds
    ways = {(record["what"], record["way"]) for record in records if "way" in record}
    assert ways == {
        (what, way)
        for what in ("texts to documents", "documents to centroids")
        for way in ("device", "main memory")
    }
    assert all(record["sound"] for record in records if str(record["what"]).startswith("check"))
    assert all(record["ms"] > 0 for record in records if "ms" in record)
    assert all({"machine", "commit", "device", "torch"} <= record.keys() for record in records)


def test_a_wrong_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.gpu_checks import checks
    from engine.gpu import rows

    right = rows.DeviceRows.document_scores

    def wrong(self, queries, docs, beta):
        return right(self, queries, docs, beta) + np.float32(1e-4)

    monkeypatch.setattr(rows.DeviceRows, "document_scores", wrong)
    record = next(checks(torch.device("cpu")))
    assert record["sound"] is False
    assert record["error"] == pytest.approx(1e-4, rel=0.01)


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_made_rows_are_the_same_however_they_are_read(kind: str) -> None:
    from bench.gpu_made import MadeTable

    table = MadeTable(np.full(67_000, 4), 8, kind)
    whole, scales = table.stored_slice(0, table.n_rows)
    block = 1 << 18
    assert (whole[:-block] != whole[block:]).any(axis=1).all()
    for low, high in ((0, 1), (block - 1, block + 1), (5, table.n_rows - 1), (table.n_rows - 1, table.n_rows)):
        part, part_scales = table.stored_slice(low, high)
        assert np.array_equal(part, whole[low:high])
        assert np.array_equal(part_scales, scales[low:high])
