"""Settings and weights of heads that Quarry trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.models.tiny_checkpoint import (
    DIM,
    edit_json,
    random_weights,
)

from quarry import engine
from quarry.exporters.export import export
from quarry.formats.errors import CorruptFile, InvalidSetting

TEXTS = ["the cat sat.", "a dog", "abc def ghi jkl mno pqr stu vwx yz"]


QUARRY_JSON = {
    "format": 1, "pooling": "cls", "normalise": False, "window": 12, "query_prefix": "Q ", "document_prefix": "D ",
    "beta": 8.0, "representation": "kmeans",
}  # fmt: skip


def test_a_checkpoint_of_our_own_training_says_how_it_is_used(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps(QUARRY_JSON), "utf-8")
    settings = export(checkpoint, tmp_path / "out", "fp32", texts=TEXTS).settings
    assert (settings.pooling, settings.normalize, settings.window, settings.beta) == ("cls", False, 12, 8.0)
    assert (settings.query_prefix, settings.document_prefix) == ("Q ", "D ")
    assert (settings.trained_representation, settings.projection) == ("kmeans", None)
    engine.build(["a cat", "two dogs"], tmp_path / "index", encoder=tmp_path / "out")
    with engine.Engine.open(tmp_path / "index", encoder=tmp_path / "out") as index:
        assert index.stats()["representation"]["name"] == "kmeans"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"format": 2}, "format"), ({"pooling": "sum"}, "pooling"), ({"normalise": 1}, "normalise"),
        ({"window": 0}, "window"), ({"beta": -1}, "beta"), ({"more": 1}, "more"), ({"representation": 3}, "repr"),
        ({"query_prefix": None}, "query_prefix"), ({"mlm": True}, "mlm"),
    ],
)  # fmt: skip
def test_bad_settings_of_our_own_are_named(
    checkpoint: Path, tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps({**QUARRY_JSON, **changes}), "utf-8")
    with pytest.raises(CorruptFile, match=rf"quarry\.json.*{named}"):
        export(checkpoint, tmp_path / "out", "fp32")


def test_a_layer_that_does_not_fit_the_network_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps(QUARRY_JSON), "utf-8")
    save_file({"projection.weight": np.zeros((8, DIM + 1), np.float32)}, checkpoint / "head.safetensors")
    with pytest.raises(CorruptFile, match=rf"another dimension; expected {DIM}; found {DIM + 1}"):
        export(checkpoint, tmp_path / "out", "fp32")


@pytest.mark.parametrize("n_words", [None, 60, 62])
def test_another_vocabulary_than_that_of_the_weights_is_refused(
    checkpoint: Path, tmp_path: Path, n_words: int | None
) -> None:
    weights = random_weights()
    predictions = {
        "transform.dense.weight": (DIM, DIM), "transform.dense.bias": (DIM,), "transform.LayerNorm.weight": (DIM,),
        "transform.LayerNorm.bias": (DIM,), "bias": (61,),
    }  # fmt: skip
    for name, shape in predictions.items():
        weights[f"cls.predictions.{name}"] = np.ones(shape, np.float32)
    save_file(weights, checkpoint / "model.safetensors")
    edit_json(checkpoint / "config.json", vocab_size=n_words)
    (checkpoint / "quarry.json").write_text(json.dumps({**AGGRETRIEVER, "mlm": True}), "utf-8")
    shapes = {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (4, DIM), "cls.bias": (4,)}
    save_file(
        {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, checkpoint / "head.safetensors"
    )
    with pytest.raises(CorruptFile, match="'vocab_size' is not that of the weights; expected 61"):
        export(checkpoint, tmp_path / "out", "fp32")


AGGRETRIEVER = {**QUARRY_JSON, "pooling": "aggretriever", "agg_dims": 8, "mlm": False}


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (4, DIM)},
        {"terms.weight": (2, DIM), "terms.bias": (2,), "cls.weight": (4, DIM), "cls.bias": (4,)},
        {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (4, DIM), "cls.bias": (5,)},
        {"terms.weight": (DIM,), "terms.bias": (1,), "cls.weight": (4, DIM), "cls.bias": (4,)},
    ],
)
def test_a_head_whose_weights_do_not_fit_is_refused(
    checkpoint: Path, tmp_path: Path, tensors: dict[str, tuple[int, ...]]
) -> None:
    (checkpoint / "quarry.json").write_text(json.dumps(AGGRETRIEVER), "utf-8")
    with pytest.raises(InvalidSetting, match=r"lacks a file.*head\.safetensors"):
        export(checkpoint, tmp_path / "out", "fp32")
    arrays = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    save_file(arrays, checkpoint / "head.safetensors")
    with pytest.raises(CorruptFile, match=r"head\.safetensors"):
        export(checkpoint, tmp_path / "out", "fp32")
