"""Encoders, and the table of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from support.bench.readme_run import ReadmeRun

from bench.harness.records import read_records
from bench.system.export import open_graph, start_encoder
from bench.system.paper_table import PAPER_MS, retrieve_two_steps
from quarry.engine.bundled import default_bundle_path
from quarry.engine.scoring.aggregation import aggregate


def test_encoders_are_measured(readme_run: ReadmeRun) -> None:
    records = {record["name"]: record for record in read_records(readme_run.results / "encode.jsonl")}
    bundled = records["quarry int8 (bundled)"]
    assert bundled["ndcg_10"] > 0.8
    assert bundled["start_ms"] > 0
    assert bundled["n_documents"] == 40
    assert "skipped" in records["sentence-transformers"]


def test_the_papers_table_has_all_its_rows(readme_run: ReadmeRun) -> None:
    names = {record["name"] for record in read_records(readme_run.results / "paper_table.jsonl")}
    assert names == {*PAPER_MS, "retrieval, two steps, Quarry"}


def test_two_steps_find_what_the_softmax_of_all_finds_where_all_are_recalled() -> None:
    generator = np.random.default_rng(0)
    centroids = generator.standard_normal((60, 8)).astype(np.float32)
    offsets = np.arange(0, 61, 3)
    query = generator.standard_normal(8).astype(np.float32)
    scores = aggregate(centroids @ query, offsets, 1.0)
    assert retrieve_two_steps(query, centroids, offsets).tolist() == np.argsort(-scores, kind="stable").tolist()


@pytest.mark.parametrize("lean", [False, True])
def test_starts_of_an_encoder_are_measured(lean: bool) -> None:
    opened = {"bundle": str(default_bundle_path()), "lean": lean}
    session, started = open_graph(opened), start_encoder(opened)
    assert min(session["session_ms"], started["start_ms"], started["query_p50_ms"], started["start_cpu_s"]) > 0
    assert started["start_rss_bytes"] >= session["session_private_bytes"] > 0
