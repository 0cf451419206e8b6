"""Vectors of an export are compared with those of the exact graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.models.tiny_checkpoint import (
    random_weights,
    write_checkpoint,
)

from quarry.engine.encoding.opening import open_encoder
from quarry.exporters.export import export
from quarry.exporters.parity.encoder import check_parity, measure_parity
from quarry.formats.bundle.encoder import ParityRecord
from quarry.formats.errors import InvalidSetting

TEXTS = ["the cat sat.", "a dog", "abc def ghi jkl mno pqr stu vwx yz"]


def test_parity_of_an_encoder_with_itself_is_perfect(checkpoint: Path, tmp_path: Path) -> None:
    encoder = open_encoder(export(checkpoint, tmp_path / "out", "fp32").path)
    record, _ = measure_parity(encoder, encoder, [*TEXTS, "", " "])
    assert record == ParityRecord(len(TEXTS), 1.0, 1.0, 1.0, 1.0)


def test_parity_finds_the_worst_text(checkpoint: Path, tmp_path: Path) -> None:
    weights = random_weights()
    exact = open_encoder(export(checkpoint, tmp_path / "exact", "fp32").path)
    words = weights["embeddings.word_embeddings.weight"]
    words[5 + ord("z") - ord("a")] *= -3  # a changed vector for one letter
    other = write_checkpoint(tmp_path / "other", weights=weights)
    record, worst = measure_parity(exact, open_encoder(export(other, tmp_path / "out", "fp32").path), ["z", "a"])
    assert worst == "z"
    assert record.token_min < 0.98
    with pytest.raises(InvalidSetting, match=r"most \(cosine .*'z'.*expected mean cosines of at least 0\.98"):
        check_parity(record, worst, "int8")


def test_parity_needs_a_text(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="at least one text"):
        export(checkpoint, tmp_path / "out", texts=["", " "])
    assert not (tmp_path / "out").exists()


def test_an_export_that_is_too_far_from_fp32_fails(tmp_path: Path) -> None:
    weights = random_weights()
    for layer in range(2):  # an unused activation that dominates the scale of int8
        weights[f"encoder.layer.{layer}.intermediate.dense.bias"][0] = 1e4
        weights[f"encoder.layer.{layer}.output.dense.weight"] *= 5
        weights[f"encoder.layer.{layer}.output.dense.weight"][:, 0] = 0
    checkpoint = write_checkpoint(tmp_path / "checkpoint", weights=weights)
    with pytest.raises(InvalidSetting, match="differs too much from fp32"):
        export(checkpoint, tmp_path / "out", texts=TEXTS, retrieval=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [float("nan"), 0.9])
def test_parity_that_is_no_number_fails(value: float) -> None:
    with pytest.raises(InvalidSetting, match="differs too much from fp32"):
        check_parity(ParityRecord(1, value, value, 1.0, 1.0), "text", "int8")
