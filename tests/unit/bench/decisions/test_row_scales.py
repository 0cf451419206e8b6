"""Errors and times of int8 encoders by the scales of their activations."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.models.tiny_checkpoint import write_checkpoint

pytest.importorskip("onnx", reason="exports need onnx")
pytest.importorskip("safetensors", reason="checkpoints are read with safetensors")

from bench.__main__ import main
from bench.harness.records import read_records


def test_both_kinds_of_scales_are_compared_with_fp32_and_timed(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    assert main(["row_scales", str(write_checkpoint(tmp_path / "checkpoint")), "--out", str(out)]) == 0
    tensor, token = read_records(out)
    assert (tensor["scales"], token["scales"]) == ("tensor", "token")
    assert tensor["token_min"] != token["token_min"]  # two graphs
    for each in (tensor, token):
        assert each["n_texts"] == 200
        assert 0.99 < each["token_mean"] < 1
        assert each["query_p50_cpu_ms"] > 0
        assert each["passage_p50_cpu_ms"] > each["query_p50_cpu_ms"]
