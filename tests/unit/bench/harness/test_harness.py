"""Processes, clocks, memory and records of measurements."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.latency import concurrent_latency_ms, time_in_turn
from bench.harness.records import append_record, read_records


def test_records_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"
    assert read_records(path) == []
    append_record(path, {"a": 1})
    append_record(path, {"a": 2})
    assert [record["a"] for record in read_records(path)] == [1, 2]


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="no-such-folder"):
        in_fresh_process(
            "bench.sweep.probe:build_index",
            {
                "prepared": str(tmp_path / "no-such-folder"),
                "out": "",
                "representation": "mean",
                "build": {},
                "nlist": None,
                "lists": False,
            },
        )


def test_a_process_that_takes_too_long_fails() -> None:
    with pytest.raises(ProcessFailed, match="no result within"):
        in_fresh_process("bench.system.probes:installed", {}, timeout_s=0.01)


def test_functions_are_timed_in_turn_with_every_argument() -> None:
    calls: list[tuple[str, int]] = []
    functions = {name: lambda number, name=name: calls.append((name, number)) or number for name in "abc"}
    found = time_in_turn(functions, range(40))
    assert [number for _, number in calls] == sorted([*range(40)] * 3)
    assert len({tuple(name for name, _ in calls[low : low + 3]) for low in range(0, 120, 3)}) == 6  # all orders
    for timing in found.values():
        assert timing.results == list(range(40))
        assert timing.wall_ms.shape == timing.cpu_ms.shape == (40,)
        assert (timing.wall_ms > 0).all()


def test_callers_run_at_once() -> None:
    together = threading.Barrier(4, timeout=60)  # waits for four calls at the same time
    found = concurrent_latency_ms(lambda _: together.wait(), range(8), 4, "x_")
    assert found.keys() == {"x_p50_ms", "x_p95_ms", "x_p99_ms", "x_qps"}
    assert min(found.values()) > 0
