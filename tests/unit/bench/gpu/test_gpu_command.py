"""The measurement of the GPU backend, on torch's CPU device."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.harness.records import Record, read_records

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

from bench.gpu import command as gpu  # noqa: E402
from bench.gpu.targets import compare_with_targets  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_everything_runs_and_every_check_holds(tmp_path: Path) -> None:
    assert main(["gpu", "--device", "cpu", "--quick", "--out", str(tmp_path / "gpu.jsonl")]) == 0
    records = read_records(tmp_path / "gpu.jsonl")
    kinds = {record["what"] for record in records}
    assert {"check scan", "check lists", "copy", "matrix product", "upload", "open", "stage 1", "lists"} <= kinds
    assert {"check queries stay", "check bad query", "check centroids", "figure"} <= kinds
    runtimes = {record["runtime"]: record for record in records if record["what"] == "encoder"}
    assert {"eager", "sdpa", "onnx", "tensorrt"} <= runtimes.keys()
    ways = {(record["what"], record["way"]) for record in records if "part" in record and "way" in record}
    assert ways == {
        (what, way)
        for what in ("texts to documents", "documents to centroids")
        for way in ("device", "main memory")
    }
    assert all(record["sound"] for record in records if str(record["what"]).startswith("check"))
    assert all(record["ms"] > 0 for record in records if "ms" in record)
    assert not [record for record in records if "failed" in record]
    measured = [record for record in records if record["what"] != "figure"]
    assert all({"machine", "commit", "device", "torch", "part"} <= record.keys() for record in measured)


def test_a_wrong_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.gpu.checks import run_checks
    from quarry.engine.backends.gpu import rows

    right = rows.DeviceRows.document_scores

    def wrong(self, queries, docs, beta):
        return right(self, queries, docs, beta) + np.float32(1e-4)

    monkeypatch.setattr(rows.DeviceRows, "document_scores", wrong)
    record = next(run_checks(torch.device("cpu"), (1, 7)))
    assert record["sound"] is False
    assert record["error"] == pytest.approx(1e-4, rel=0.01)


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_made_rows_are_the_same_however_they_are_read(kind: str) -> None:
    from bench.gpu.synthetic import SyntheticTable

    table = SyntheticTable(np.full(67_000, 4), 8, kind)
    whole, scales = table.stored_slice(0, table.n_rows)
    block = 1 << 18
    assert (whole[:-block] != whole[block:]).any(axis=1).all()
    for low, high in ((0, 1), (block - 1, block + 1), (5, table.n_rows - 1), (table.n_rows - 1, table.n_rows)):
        part, part_scales = table.stored_slice(low, high)
        assert np.array_equal(part, whole[low:high])
        assert np.array_equal(part_scales, scales[low:high])


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    gpu.add_arguments(parser)
    return parser.parse_args([*words, "--device", "cpu", "--quick"])


def test_failures_do_not_stop_the_others_and_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr("quarry.engine.backends.gpu.rows.DeviceRows.document_scores", lost)
    out = tmp_path / "gpu.jsonl"
    assert gpu.run(arguments("--parts", "sizes,ceilings", "--out", str(out))) == 1
    records = read_records(out)
    failed = [record for record in records if "failed" in record]
    assert all("illegal memory access" in str(record["traceback"]) for record in failed)
    assert {(record["stored"], record["batch"]) for record in failed} == {
        (stored, batch) for stored in ("float16", "int8") for batch in (1, 16)
    }
    assert {"open", "lists", "copy", "matrix product"} <= {
        record["what"] for record in records if "what" in record
    }
    assert "illegal memory access" in capsys.readouterr().err


def test_a_part_has_a_process_and_a_time_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, ends = tmp_path / "gpu.jsonl", time.perf_counter() + 100
    gpu._run_in_process("ceilings", arguments(), out, ends)
    assert [record["what"] for record in read_records(out)] == ["copy", "upload", "matrix product"]
    out.unlink()
    monkeypatch.setattr(gpu, "_MAX_S", {"ceilings": 0.1})
    monkeypatch.setattr(gpu, "_GRACE_S", 0)
    gpu._run_in_process("ceilings", arguments(), out, ends)
    gpu._run_in_process("ceilings", arguments(), out, time.perf_counter())
    assert [record["left_out"] for record in read_records(out)] == ["ended after 0 s", "out of time"]


def test_a_process_that_dies_is_a_record(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    wrong_arguments = arguments()
    wrong_arguments.device = "nonsense"
    gpu._run_in_process("ceilings", wrong_arguments, out, time.perf_counter() + 100)
    assert [record["failed"] for record in read_records(out)] == ["ended with 1"]


def test_figures_are_compared_with_their_targets() -> None:
    both = {"what": "both stages", "stored": "float16", "kernels": True}
    records: list[Record] = [
        {"what": "copy", "ms": 1.0, "gb_s": 4000.0},
        {"what": "matrix product", "ms": 1.0, "tflop_s": 800.0},
        {**both, "batch": 1, "ms": 3.0, "gb_s": 2500.0, "tflop_s": 2.0, "queries_s": 300.0},
        {**both, "batch": 1, "ms": 9.0, "gb_s": 800.0, "tflop_s": 1.0, "queries_s": 100.0, "kernels": False},
        {**both, "batch": 256, "ms": 9.0, "gb_s": 800.0, "tflop_s": 200.0, "queries_s": 30_000.0},
        {"what": "peer torch", "batch": 256, "ms": 18.0, "queries_s": 15_000.0},
        {"what": "peer cuvs IVF-PQ", "missing": "no such module"},
        *(
            {
                "what": "encoder",
                "shape": "MiniLM",
                "runtime": name,
                "kind": "passages",
                "ms": 1.0,
                "tokens_s": rate,
            }
            for name, rate in (("eager", 1e6), ("onnx", 3e6))
        ),
    ]
    found = {str(record["name"]): record for record in compare_with_targets(records)}
    reads, share, torch_rate, cuvs, onnx, *missing = found.values()
    assert (reads["value"], reads["met"]) == (pytest.approx(1.6), True)
    assert (share["value"], share["met"]) == (pytest.approx(0.25), False)
    assert (torch_rate["value"], torch_rate["way"]) == (pytest.approx(2.0), "all centroids")
    assert "missing" in cuvs
    assert (onnx["value"], onnx["met"]) == (pytest.approx(3.0), True)
    assert all("missing" in record for record in missing)
