"""Measurements of other libraries beside Quarry."""

from __future__ import annotations

import argparse
import shutil
import sysconfig
import venv
from dataclasses import replace
from pathlib import Path

import pytest
from support.bench.readme_run import ReadmeRun

from bench.__main__ import main
from bench.data.prepared import Prepared
from bench.data.quality import read_run
from bench.harness.records import read_records
from bench.peers.command import add_arguments, run
from bench.peers.registry import PEERS, environment_python


def test_peers_are_measured_beside_quarry_and_reported(copied_run: ReadmeRun, capsys) -> None:
    path = copied_run.results / "peers.jsonl"
    records = {record["name"]: record for record in read_records(path)}
    flat, quarry = records["FAISS Flat"], records["Quarry, dense, one mean vector, int8"]
    assert flat["ndcg_10"] == pytest.approx(quarry["ndcg_10"], abs=0.02)  # float32 and int8 vectors
    assert flat["vectors_disk_bytes"] > 40 * 384 * 4 > quarry["vectors_disk_bytes"]
    assert "vector_p50_ms" not in records["bm25s"]
    assert records["bm25s"]["text_p50_ms"] > 0
    ranking = read_run(next(copied_run.results.glob("runs/*/FAISS_Flat.run")))
    best = Prepared(next(copied_run.cache.iterdir())).oracle("mean")[0]
    assert list(ranking["q-bread"])[:10] == [f"d{number}" for number in best[:10]]

    before = path.read_text(encoding="utf-8")
    arguments = ["peers", str(copied_run.collection), "--out", str(copied_run.results), "--only"]
    assert main([*arguments, "FAISS Flat"]) == 0  # measured before
    assert path.read_text(encoding="utf-8") == before
    capsys.readouterr()
    assert main([*arguments, "Chroma"]) == 1
    assert "Chroma is not measured: no environment at" in capsys.readouterr().err
    assert main([*arguments, "FAISS Flat", "Crhoma"]) == 1
    assert "--only names no row; expected words of" in capsys.readouterr().err
    missing = {record["name"]: record for record in read_records(path)}["Chroma"]
    assert "--install" in missing["skipped"]  # the cache has no environment for it

    assert main(["report", str(copied_run.results)]) == 0
    report = (copied_run.results / "report.md").read_text(encoding="utf-8")
    assert f"| FAISS Flat | {flat['ndcg_10']:.4f} |" in report
    assert "Not measured: Chroma" in report
    assert f"| FAISS Flat | {flat['ndcg_10']:.4f} | {flat['vectors_disk_bytes'] / 40:,.0f} (" in report


def test_a_peer_is_measured_in_an_environment_of_its_own(
    copied_run: ReadmeRun, tmp_path: Path, monkeypatch, capsys
) -> None:
    """One environment has the packages of this one; the other has none, and the failure is an error."""
    bm25s = next(entry for entry in PEERS if entry.name == "bm25s")
    apart, bare = (replace(bm25s, name=name, environment=name) for name in ("apart", "bare"))
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(shutil.copytree(copied_run.cache, tmp_path / "cache")))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for entry in (apart, bare):
        venv.create(environment_python(entry).parent.parent, symlinks=True)
    packages = next(environment_python(apart).parent.parent.glob("[Ll]ib/**/site-packages"))
    everything = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"  # reads its .pth files too
    (packages / "packages.pth").write_text(everything, "utf-8")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = [str(copied_run.collection), "--out", str(copied_run.results), "--only"]
    assert run(parser.parse_args([*arguments, "apart"]), (apart, bare)) == 0
    assert run(parser.parse_args([*arguments, "bare"]), (apart, bare)) == 1
    assert "bare is not measured: ModuleNotFoundError: No module named 'numpy'" in capsys.readouterr().err
    records = {record["name"]: record for record in read_records(copied_run.results / "peers.jsonl")}
    assert records["apart"]["text_p50_ms"] > 0
    assert "numpy" in records["bare"]["skipped"]
