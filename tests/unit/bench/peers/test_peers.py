"""Measurements of other libraries beside Quarry."""

from __future__ import annotations

import pytest
from support.bench.readme_run import ReadmeRun

from bench.__main__ import main
from bench.data.prepared import Prepared
from bench.data.trec_run import read_run
from bench.harness.records import read_records


def test_peers_are_measured_beside_quarry_and_reported(copied_run: ReadmeRun) -> None:
    path = copied_run.results / "peers.jsonl"
    records = {record["name"]: record for record in read_records(path)}
    flat, quarry = records["FAISS Flat"], records["Quarry, dense, one mean vector, int8"]
    assert flat["ndcg_10"] == pytest.approx(quarry["ndcg_10"], abs=0.02)  # float32 and int8 vectors
    assert flat["vectors_disk_bytes"] > 40 * 384 * 4 > quarry["vectors_disk_bytes"]
    assert "vector_p50_ms" not in records["bm25s"]
    assert records["bm25s"]["text_p50_ms"] > 0
    run = read_run(next(copied_run.results.glob("runs/*/FAISS_Flat.run")))
    best = Prepared(next(copied_run.cache.iterdir())).oracle("mean")[0]
    assert list(run["q-bread"])[:10] == [f"d{number}" for number in best[:10]]

    before = path.read_text(encoding="utf-8")
    arguments = ["peers", str(copied_run.collection), "--out", str(copied_run.results), "--only"]
    assert main([*arguments, "FAISS Flat"]) == 0  # measured before
    assert path.read_text(encoding="utf-8") == before
    assert main([*arguments, "Chroma"]) == 0
    missing = {record["name"]: record for record in read_records(path)}["Chroma"]
    assert "--install" in missing["skipped"]  # the cache has no environment for it

    assert main(["report", str(copied_run.results)]) == 0
    report = (copied_run.results / "report.md").read_text(encoding="utf-8")
    assert f"| FAISS Flat | {flat['ndcg_10']:.4f} |" in report
    assert "Not measured: Chroma" in report
    assert f"| FAISS Flat | {flat['ndcg_10']:.4f} | {flat['vectors_disk_bytes'] / 40:,.0f} (" in report
