"""Checkpoints of rerankers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import (
    DIM,
    edit_json,
    reranker_weights,
    write_reranker_checkpoint,
)

from quarry.exporters.export import export, export_reranker
from quarry.formats.errors import CorruptFile, InvalidSetting


@pytest.mark.parametrize("length", [None, 10**30, 512, "24", 1e30])
def test_a_reranker_without_a_length_reads_all_positions(
    cross_encoder: Path, tmp_path: Path, length: object
) -> None:
    edit_json(cross_encoder / "tokenizer_config.json", model_max_length=length)
    assert export_reranker(cross_encoder, tmp_path / "out", "fp32").settings.window == 40
    (cross_encoder / "tokenizer_config.json").unlink()
    assert export_reranker(cross_encoder, tmp_path / "other", "fp32").settings.window == 40


@pytest.mark.parametrize(
    ("labels", "found"),
    [({"num_labels": 3}, 3), ({"id2label": {"0": "no", "1": "yes"}}, 2), ({"id2label": None}, 2)],
    ids=repr,
)
def test_more_labels_than_one_are_refused(
    cross_encoder: Path, tmp_path: Path, labels: dict[str, object], found: int
) -> None:
    edit_json(cross_encoder / "config.json", **labels)
    with pytest.raises(InvalidSetting, match=f"one label .*; expected 1; found {found}"):
        export_reranker(cross_encoder, tmp_path / "out", "fp32")


def test_one_label_may_be_given_as_a_number(cross_encoder: Path, tmp_path: Path) -> None:
    edit_json(cross_encoder / "config.json", id2label=None, num_labels=1)
    assert export_reranker(cross_encoder, tmp_path / "out", "fp32").verify_files() > 0
    edit_json(cross_encoder / "config.json", num_labels="1")
    with pytest.raises(CorruptFile, match="num_labels"):
        export_reranker(cross_encoder, tmp_path / "other", "fp32")


def test_encoders_and_rerankers_are_not_taken_for_each_other(
    checkpoint: Path, cross_encoder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match="not of kind encoder; expected encoder; found reranker"):
        export(cross_encoder, tmp_path / "out", "fp32")
    with pytest.raises(InvalidSetting, match="not of kind reranker; expected reranker; found encoder"):
        export_reranker(checkpoint, tmp_path / "out", "fp32")


def test_other_classifiers_are_rerankers_that_cannot_be_exported(cross_encoder: Path, tmp_path: Path) -> None:
    edit_json(
        cross_encoder / "config.json", architectures=["RobertaForSequenceClassification"], model_type="roberta"
    )
    with pytest.raises(InvalidSetting, match=r"model_type.*expected bert; found roberta"):
        export_reranker(cross_encoder, tmp_path / "out", "fp32")


@pytest.mark.parametrize("name", ["bert.pooler.dense.weight", "classifier.weight", "classifier.bias"])
@pytest.mark.parametrize("shape", [None, (2, DIM), (2,), (DIM, 1), (1, DIM + 1)])
def test_a_head_that_does_not_fit_is_refused(tmp_path: Path, name: str, shape: tuple[int, ...] | None) -> None:
    weights = reranker_weights()
    del weights[name]
    if shape is not None:
        weights[name] = np.zeros(shape, np.float32)
    folder = write_reranker_checkpoint(tmp_path / "cross", weights=weights)
    with pytest.raises(CorruptFile, match=name.removeprefix("bert.").replace(".", r"\.")):
        export_reranker(folder, tmp_path / "out", "fp32")
