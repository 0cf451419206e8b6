"""The reproductions in small: bootstrap, table, and a run of every method on a tiny collection."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.training.tiny_run import tiny_encoder, write_collection

from bench.harness.records import read_records
from bench.training.bootstrap import paired_difference, seed_means


def test_a_difference_is_sure_when_most_queries_agree() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(400)
    noise = rng.normal(0, 0.1, 400)
    better, same = (
        paired_difference(base + 0.05 + noise, base),
        paired_difference(base + noise - noise.mean(), base),
    )
    assert better.mean == pytest.approx(0.05 + noise.mean())
    assert 0 < better.low < better.mean < better.high
    assert same.low < 0 < same.high
    # The interval is that of the normal approximation, here.
    half = 1.96 * noise.std() / 20
    assert better.low == pytest.approx(better.mean - half, abs=0.15 * half)
    assert better.high == pytest.approx(better.mean + half, abs=0.15 * half)


def test_values_without_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference(np.ones(0), np.ones(0))


def test_runs_of_several_seeds_are_averaged_query_by_query() -> None:
    np.testing.assert_array_equal(seed_means([[1, 0, 0.5], [0, 0, 0.5]]), [0.5, 0, 0.5])


def test_every_method_is_trained_and_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="training is made of torch")
    pytest.importorskip("transformers", reason="transformers runs the networks that are trained")
    pytest.importorskip("matplotlib", reason="curves are drawn by matplotlib")
    from bench.__main__ import main

    monkeypatch.setenv("QUARRY_DATA", str(tmp_path))
    folder = write_collection(tmp_path / "letters")
    qrels = (folder / "qrels" / "train.tsv").read_text("utf-8")
    (folder / "qrels" / "dev.tsv").write_text(qrels, "utf-8")
    checkpoint, out = tiny_encoder(tmp_path / "checkpoint"), tmp_path / "out.jsonl"
    arguments = ["reproduce", str(checkpoint), "--collection", "letters", "--code-bytes", "4", "--seeds", "0", "1"]
    arguments += [
        "--steps",
        "2",
        "--batch-size",
        "8",
        "--held-out",
        "0",
        "--runs",
        str(tmp_path / "runs"),
        "--out",
        str(out),
    ]
    assert main([*arguments, "--methods", "opq", "dpq", "clustering", "repconc", "jpq", "repconc+jpq"]) == 0
    records = read_records(out)
    assert len(records) == 12
    for record in records:
        values = record["rr_10_by_query"]
        assert isinstance(values, list)
        assert len(values) == 48
        assert float(str(record["rr_10"])) == pytest.approx(np.mean(values), abs=1e-4)
        assert 1 <= float(str(record["effective_codewords"])) <= 16
    opq, dpq = (
        [each["rr_10_by_query"] for each in records if each["method"] == method] for method in ("opq", "dpq")
    )
    assert opq != dpq
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 4 |")]
    assert [line.split(" | ")[1] for line in table] == [
        "opq",
        "dpq",
        "jpq",
        "clustering",
        "repconc",
        "repconc+jpq",
    ]
    before = out.read_bytes()
    assert main([*arguments, "--methods", "opq"]) == 0
    assert out.read_bytes() == before
    assert json.loads(before.splitlines()[0])["collection"] == "letters"
