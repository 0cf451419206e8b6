"""Small measurements of servers: they start, answer, and report no errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.harness.records import read_records


def test_a_server_under_load(beir_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="the measurement needs this library")
    pytest.importorskip("uvicorn", reason="the measurement needs this library")
    out = tmp_path / "out.jsonl"
    assert main(["serve", str(beir_folder), "--clients", "2", "--seconds", "2", "--out", str(out)]) == 0
    (record,) = read_records(out)
    assert (record["n_wrong"], record["wrong"]) == (0, {})
    rss = record["rss_bytes"]
    assert isinstance(rss, list)
    assert record["rss_growth_of_second_half_bytes"] == rss[-1] - rss[len(rss) // 2]
    assert record["searches_s"] > 0  # type: ignore[operator]
