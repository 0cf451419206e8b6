"""The dry run of the measurement on a GPU, on torch's CPU device."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.harness.records import Record, read_records

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

from torch.overrides import TorchFunctionMode  # noqa: E402

from bench.gpu import command as gpu  # noqa: E402
from bench.gpu.command import PARTS, compare_with_targets  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.skipif(find_spec("triton") is None, reason="the kernels need triton")
def test_everything_runs_and_every_check_holds(tmp_path: Path) -> None:
    assert main(["gpu", "--dry-run", "--commit", "abc", "--out", str(tmp_path / "gpu.jsonl")]) == 0
    records = read_records(tmp_path / "gpu.jsonl")
    assert [record["part"] for record in records if record["what"] == "part"] == list(PARTS)
    kinds = {record["what"] for record in records}
    assert {
        "copy",
        "matrix product",
        "upload",
        "open",
        "stage 1",
        "lists",
        "build",
        "peer torch",
        "figure",
    } <= kinds
    assert {"eager", "sdpa", "torch", "onnx"} <= {record.get("runtime") for record in records}
    assert {record["way"] for record in records if record["what"] == "texts to documents"} == {
        "device",
        "main memory",
    }
    assert len([record for record in records if record["what"] == "table 4"]) == 4
    assert len([record for record in records if record["what"] == "table 7"]) == 3
    assert all(record["ms"] > 0 for record in records if "ms" in record)
    measured = [record for record in records if record["what"] not in ("figure", "part")]
    assert all({"machine", "device", "torch", "part"} <= record.keys() for record in measured)
    assert {record["commit"] for record in measured} == {"abc"}


def test_a_wrong_answer_is_noticed(tmp_path: Path) -> None:
    from bench.gpu.checks import check_backends
    from bench.gpu.sizes import DRY

    class Wrong(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            is_final = func is torch.Tensor.float and args[0].dtype == torch.float64
            return result + 1e-4 if is_final else result

    with Wrong():
        record = next(check_backends(torch.device("cpu"), DRY, tmp_path))
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


def run(*words: str, **options: float) -> int:
    parser = argparse.ArgumentParser()
    gpu.add_arguments(parser)
    return gpu.run(parser.parse_args(["--dry-run", *words]), **options)


def test_failures_do_not_stop_the_others_and_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu.jsonl"
    monkeypatch.setitem(gpu.PARTS, "engine", gpu.Part("engine:no_such_function", 10, ("check metric",)))
    assert run("--parts", "engine,ceilings", "--out", str(out)) == 1
    records = read_records(out)
    (failed,) = (str(record["failed"]) for record in records if "failed" in record)
    assert "no_such_function" in failed
    left_out = [(record["part"], record["what"]) for record in records if "left_out" in record]
    assert left_out == [("engine", "check metric")]
    assert {"copy", "upload", "matrix product"} <= {record["what"] for record in records}


def test_a_part_has_a_time_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    assert run("--parts", "ceilings,ceilings", "--seconds", "0.1", "--out", str(out), grace_s=0) == 1
    left_out = [record["left_out"] for record in read_records(out) if "left_out" in record]
    assert left_out == ["ended after 0 s", "out of time"]


def test_what_fails_or_is_missing_or_left_out_is_bad() -> None:
    good: list[Record] = [
        {"what": "check scan", "sound": True},
        {"what": "copy", "ms": 1.0},
        {"what": "figure", "met": False},
    ]
    bad: list[Record] = [
        {"what": "check scan", "sound": False},
        {"what": "check import", "missing": "no such module"},
        {"what": "copy", "failed": "lost"},
        {"what": "part", "left_out": "out of time"},
    ]
    assert [gpu.is_bad(record) for record in (*good, *bad)] == [False] * 3 + [True] * 4


def test_figures_are_compared_with_their_targets() -> None:
    both = {"what": "both stages", "stored": "float16", "kernels": True}
    records: list[Record] = [
        {"what": "copy", "ms": 1.0, "gb_s": 4000.0},
        {"what": "matrix product", "ms": 1.0, "tflop_s": 800.0},
        {**both, "batch": 1, "ms": 3.0, "gb_s": 2500.0, "tflop_s": 2.0, "queries_s": 300.0},
        {**both, "batch": 1, "ms": 9.0, "gb_s": 800.0, "tflop_s": 1.0, "queries_s": 100.0, "kernels": False},
        {**both, "batch": 256, "ms": 9.0, "gb_s": 800.0, "tflop_s": 200.0, "queries_s": 30_000.0},
        {"what": "peer torch", "batch": 256, "ms": 18.0, "queries_s": 15_000.0},
        {"what": "peer cuvs brute force", "missing": "no such module"},
        *(
            {
                "what": "encoder",
                "shape": "MiniLM",
                "runtime": name,
                "kind": "passages",
                "ms": 1.0,
                "tokens_s": rate,
            }
            for name, rate in (("eager", 1e6), ("torch", 3e6))
        ),
    ]
    found = {str(record["name"]): record for record in compare_with_targets(records)}
    reads, share, torch_rate, cuvs, torch_runtime, *missing = found.values()
    assert (reads["value"], reads["met"]) == (pytest.approx(1.6), True)
    assert (share["value"], share["met"]) == (pytest.approx(0.25), False)
    assert torch_rate["value"] == pytest.approx(2.0)
    assert "missing" in cuvs
    assert (torch_runtime["value"], torch_runtime["met"]) == (pytest.approx(3.0), True)
    assert all("missing" in record for record in missing)
