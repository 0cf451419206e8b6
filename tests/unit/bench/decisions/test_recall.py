"""Recall of inverted lists compared with a scan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.data.collections import read_collection
from bench.decisions.recall import measure
from bench.harness.records import read_records
from quarry.engine import Engine, build
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.pieces import Pieces
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.search_setting import SearchSetting as EngineSetting


def test_recall_is_that_of_a_scan(beir_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recall is measured correctly for default settings and for settings that read as little as possible."""
    monkeypatch.setattr("quarry.engine.quantization.candidates._LEAST", 1)
    build(
        beir_folder,
        tmp_path / "subjects",
        representation=Pieces(8),
        thresholds=Thresholds(calibration_queries=64, list_rows=40),
    )
    usual = Snapshot(Directory(tmp_path / "subjects"))
    (segment,) = usual.segments
    assert segment.quantizer is not None
    little = replace(segment.quantizer, search_settings=(EngineSetting(1, 1, 1),))
    least = Snapshot(usual.directory, [replace(segment, quantizer=little)], usual.manifest)
    texts = list(read_collection(beir_folder, "test").queries.values())
    queries = np.stack([open_encoder().encode_query(text) for text in texts])
    found = {(each["index"], each["k"]): each for each in measure({"usual": usual, "least": least}, queries)}
    for name, options in (("usual", {}), ("least", {"nprobe": 1, "candidates": 10})):
        with Engine.open(tmp_path / "subjects", backend="cpu_faiss") as index:
            hits = index.search_vectors(queries, k=10, **options)  # type: ignore[arg-type]
        with Engine.open(tmp_path / "subjects", backend="scan") as index:
            best = index.search_vectors(queries, k=10)
        shares = [
            len({hit.id for hit in ours} & {hit.id for hit in theirs}) / 10
            for ours, theirs in zip(hits, best, strict=True)
        ]
        assert found[name, 10]["recall"] == pytest.approx(np.mean(shares))
    assert found["least", 10]["recall"] < found["usual", 10]["recall"]
    assert (found["least", 10]["nprobe"], found["least", 10]["candidates"]) == (1, 10)


def test_recall_leaves_its_results(beir_folder: Path, tmp_path: Path) -> None:
    build(
        beir_folder,
        tmp_path / "ix",
        representation=Pieces(8),
        thresholds=Thresholds(calibration_queries=64, list_rows=40),
    )
    out = tmp_path / "recall.jsonl"
    paths = [str(tmp_path / "ix"), str(beir_folder), "--baseline", str(tmp_path / "ix")]
    assert main(["recall", *paths, "--out", str(out), "--queries", "5"]) == 0
    records = [(each["index"], each["k"], each["queries_of"], each["n_queries"]) for each in read_records(out)]
    names = ("ix", "ix (baseline)")
    assert records == [(name, k, "subjects", 5) for k in (10, 100) for name in names]


def test_recall_needs_inverted_lists(
    beir_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(beir_folder, tmp_path / "ix", representation=Pieces(8))
    assert main(["recall", str(tmp_path / "ix"), str(beir_folder), "--out", str(tmp_path / "out.jsonl")]) == 1
    assert "too small for inverted lists" in capsys.readouterr().err
