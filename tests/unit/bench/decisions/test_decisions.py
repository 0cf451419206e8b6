"""Measurements that chose default settings."""

from __future__ import annotations

import pytest
from support.bench.readme_run import ReadmeRun

from bench.harness.records import read_records


def test_the_quality_of_representations_is_that_of_an_exact_search(readme_run: ReadmeRun) -> None:
    records = {
        record["representation"]: record for record in read_records(readme_run.results / "representation.jsonl")
    }
    assert records["mean"]["vectors_a_document"] == 1
    assert records["pieces"]["quality"]["ndcg_10"] > 0.8
    sweep = next(record for record in read_records(readme_run.results / "tradeoff.jsonl"))
    assert records["mean"]["quality"]["ndcg_10"] == pytest.approx(sweep["ndcg_10"], abs=0.02)  # float32, int8


def test_filters_and_modes_are_measured(readme_run: ReadmeRun) -> None:
    filtered = read_records(readme_run.results / "filters.jsonl")
    assert {record["mode"] for record in filtered} == {"dense", "lexical", "hybrid"}
    assert len(filtered) == 3 * 14
    assert all(record["ratio"] > 0 and record["evaluation_cpu_ms"] > 0 for record in filtered)
    modes = read_records(readme_run.results / "hybrid_latency.jsonl")
    assert [(record["mode"], record["k"]) for record in modes][-2:] == [("hybrid", 10), ("hybrid", 100)]
    backends = {record["backend"]: record for record in read_records(readme_run.results / "backends.jsonl")}
    assert backends["exact"]["recall_at_10"] == backends["scan"]["recall_at_10"] == 1
    lexical = {
        (each["name"], each["by"]): each["value"] for each in read_records(readme_run.results / "lexical.jsonl")
    }
    assert lexical["nDCG@10", "engine"] == pytest.approx(lexical["nDCG@10", "bm25s"], abs=0.02)
