"""The sweep over settings, and its plots."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from support.bench.readme_run import ReadmeRun

from bench.__main__ import main
from bench.data.collections import read_collection
from bench.data.prepare import prepare
from bench.harness.records import append_record, read_records
from bench.sweep.plots import pareto_front
from bench.sweep.tradeoff import IndexSetting, SearchSetting, Setting, list_settings, measure_settings
from quarry.engine import Mean, open_encoder


def test_a_sweep_leaves_results_and_plots(copied_run: ReadmeRun) -> None:
    records = read_records(copied_run.results / "tradeoff.jsonl")
    plain = next(record for record in records if record["index"]["representation"] == "mean")
    assert plain["n_documents"] == 40
    assert plain["n_centroids"] == 40
    assert plain["recall_100"] == 1.0
    assert plain["ndcg_10"] > 0.8
    assert plain["bytes"]["codes"] == 0
    assert plain["n_callers"] >= 1
    assert plain["callers_p99_ms"] >= plain["callers_p50_ms"] > 0
    assert {record["axis"] for record in records} == {"representation", "codes alone", "nprobe"}
    assert all("skipped" not in record for record in records)
    assert [record["chosen"] for record in records if record["axis"] == "nprobe"] == [["cpu_faiss"]] * 2
    assert plain["chosen"] == ["scan"]
    (plot,) = copied_run.results.glob("*.png")
    assert plot.stat().st_size < 150_000


def test_a_sweep_is_resumed(copied_run: ReadmeRun, tmp_path: Path) -> None:
    results, runs = copied_run.results / "tradeoff.jsonl", tmp_path / "runs"
    records = read_records(results)
    lines = results.read_text(encoding="utf-8").splitlines(keepends=True)
    results.write_text("".join(lines[:-1]) + lines[-1][:-20], encoding="utf-8")  # stopped within a line
    assert len(read_records(results)) == len(lines) - 1
    before = next(copied_run.cache.glob("*/mean.f32")).stat().st_mtime_ns
    (plot,) = copied_run.results.glob("*.png")
    drawn, plain = plot.read_bytes(), records[0]
    peer = {"name": "x", "module": "x", "prepared": plain["prepared"], "machine": plain["machine"], "ndcg_10": 0.1}
    numbers = {"n_documents": 40, "vectors_disk_bytes": 40_000, "vector_p50_ms": 1.0}
    append_record(results.with_name("peers_subjects.jsonl"), {**peer, **numbers})
    arguments = ["tradeoff", str(copied_run.collection), "--quick", "--out", str(copied_run.results)]
    assert main([*arguments, "--runs", str(runs)]) == 0
    assert plot.read_bytes() != drawn  # it shows the peer
    assert [record["key"] for record in read_records(results)] == [record["key"] for record in records]
    assert next(copied_run.cache.glob("*/mean.f32")).stat().st_mtime_ns == before
    (run,) = runs.iterdir()
    assert run.name == f"{records[-1]['key']}.run"
    assert main(["judge", str(copied_run.collection), "--run", str(run)]) == 0


@pytest.mark.parametrize("quick", [True, False])
def test_the_settings_of_a_sweep_are_distinct_and_keep_indexes_together(quick: bool) -> None:
    keys = ["mean", "pieces-24", "pieces-96"]
    found = list_settings(keys, 384, quick=quick)
    assert len({setting.key for setting in found}) == len(found)
    assert {setting.index.representation for setting in found} == set(keys)
    changes = sum(one.index != other.index for one, other in pairwise(found))
    assert changes + 1 == len({repr(setting.index) for setting in found})


def test_the_front_contains_all_points_that_no_other_dominates() -> None:
    points = [(1.0, 0.5), (2.0, 0.4), (3.0, 0.9), (3.0, 0.8), (4.0, 0.9)]
    assert pareto_front(points, more_is_better=False) == [(1.0, 0.5), (3.0, 0.9)]
    assert pareto_front(points, more_is_better=True) == [(4.0, 0.9)]


def test_a_build_that_fails_is_recorded_for_all_its_searches(beir_folder: Path, cache: Path) -> None:
    prepared = prepare(read_collection(beir_folder, "test"), open_encoder(), [Mean()], cache)
    broken = IndexSetting("mean", {"code_bytes": 7})  # is not a divisor of the dimension
    searches = [Setting("x", broken, SearchSetting(nprobe=nprobe)) for nprobe in (1, 2)]
    whole = Setting("x", IndexSetting("mean", {"code_bytes": 0}), SearchSetting())
    first, second, third = measure_settings([*searches, whole], prepared, None)
    assert "code_bytes" in first["skipped"]
    assert first["skipped"] == second["skipped"]
    assert third["recall_10"] == 1.0


def test_a_backend_that_is_missing_is_recorded_and_reported(
    beir_folder: Path, cache: Path, tmp_path: Path
) -> None:
    collection = read_collection(beir_folder, "test")
    prepared = prepare(collection, open_encoder(), [Mean()], cache)
    setting = Setting("backend", IndexSetting("mean", {"code_bytes": 0}), SearchSetting("no such backend"))
    (record,) = measure_settings([setting], prepared, None)
    assert "unknown backend" in record["skipped"]
    append_record(tmp_path / "tradeoff.jsonl", record)
    assert main(["report", str(tmp_path)]) == 0
    assert "Not measured: mean, int8" in (tmp_path / "report.md").read_text(encoding="utf-8")
