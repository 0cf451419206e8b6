"""Small measurements of servers: they start, answer, and report no errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bench.readme_run import write_subjects

from bench.__main__ import main
from bench.harness.records import read_records


@pytest.fixture
def folder(tmp_path: Path, small_corpus: list[dict[str, object]]) -> Path:
    return write_subjects(tmp_path / "subjects", small_corpus)


def test_a_server_of_the_model_context_protocol(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the measurement needs it")
    out = tmp_path / "out.jsonl"
    assert main(["mcp", str(folder), "--starts", "1", "--queries", "3", "--out", str(out)]) == 0
    (record,) = read_records(out)
    assert (record["n_errors"], record["n_searches"]) == (0, 2)  # the first search is reported separately
    assert record["ready_p50_s"] == record["ready_max_s"]
    for name in ("first_search_p50_ms", "search_p50_ms", "search_p99_ms", "get_document_p50_ms"):
        assert record[name] > 0  # type: ignore[operator]


def test_a_server_under_load(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="the measurement needs it")
    pytest.importorskip("uvicorn", reason="the measurement needs it")
    out = tmp_path / "out.jsonl"
    assert main(["serve", str(folder), "--clients", "2", "--seconds", "2", "--out", str(out)]) == 0
    (record,) = read_records(out)
    assert (record["n_wrong"], record["wrong"]) == (0, {})
    rss = record["rss_bytes"]
    assert isinstance(rss, list)
    assert record["rss_growth_of_second_half_bytes"] == rss[-1] - rss[len(rss) // 2]
    assert record["searches_s"] > 0  # type: ignore[operator]
