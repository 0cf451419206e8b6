"""Checkpoints that a reranker is trained from."""

from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import (
    CONFIG,
    DIM,
    RERANKER_CONFIG,
    edit_json,
    random_weights,
    reranker_weights,
    write_checkpoint,
    write_reranker_checkpoint,
)

torch = pytest.importorskip("torch", reason="networks need torch")
pytest.importorskip("transformers", reason="training needs transformers")

from quarry.formats.errors import CorruptFile, InvalidSetting  # noqa: E402
from quarry.training.model.cross_encoder import check_lengths, load_cross_encoder  # noqa: E402
from quarry.training.model.network import load_network  # noqa: E402
from quarry.training.model.tokens import PairBatcher  # noqa: E402


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("model_type", "roberta"),
        ("model_type", None),
        ("hidden_act", "relu"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
    ],
)
def test_networks_that_cannot_be_exported_are_refused(tmp_path: Path, member: str, value: object) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", config={**CONFIG, member: value})
    with pytest.raises(InvalidSetting, match=f"cannot be exported: config.json, '{member}'"):
        load_cross_encoder(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("model.safetensors", "damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: str) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / name).write_text(content, "utf-8")
    with pytest.raises(CorruptFile) as caught:
        load_cross_encoder(folder)
    assert caught.value.path in (folder, folder / name)


def test_weights_that_would_stay_random_are_an_error(tmp_path: Path) -> None:
    weights = {name: values for name, values in random_weights().items() if "layer.1." not in name}
    folder = write_checkpoint(tmp_path / "checkpoint", weights=weights)
    for load in (load_cross_encoder, load_network):
        with pytest.raises(CorruptFile, match=r"lacks a weight; expected .*layer\.1\."):
            load(folder)


def test_a_classifier_of_several_labels_is_an_error(tmp_path: Path) -> None:
    weights = reranker_weights()
    weights |= {"classifier.weight": np.zeros((3, DIM), np.float32), "classifier.bias": np.zeros(3, np.float32)}
    names = {str(number): f"LABEL_{number}" for number in range(3)}
    config = {**RERANKER_CONFIG, "id2label": names, "label2id": {name: int(key) for key, name in names.items()}}
    folder = write_reranker_checkpoint(tmp_path / "checkpoint", weights=weights, config=config)
    with pytest.raises(CorruptFile, match=r"more than one label; found .*classifier"):
        load_cross_encoder(folder)


@pytest.mark.parametrize(
    ("frozen", "trained"),
    [
        ("encoder.", {"embeddings", "pooler", "classifier"}),
        ("bert.encoder.", {"embeddings", "pooler", "classifier"}),
        ("classifier.", {"embeddings", "encoder", "pooler"}),
        ("bert.", {"classifier"}),
    ],
)
def test_parameters_are_frozen_with_and_without_the_prefix(tmp_path: Path, frozen: str, trained: set[str]) -> None:
    network = load_cross_encoder(write_checkpoint(tmp_path / "checkpoint"), frozen=(frozen,))
    names = {name.removeprefix("bert.").split(".")[0] for name, _ in network.trained_parameters()}
    assert names == trained


def test_an_unknown_name_to_freeze_is_quoted_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"found 'decoder\.'"):
        load_cross_encoder(write_checkpoint(tmp_path / "checkpoint"), frozen=("decoder.",))


def test_a_network_without_a_second_token_type_is_refused(tmp_path: Path) -> None:
    weights, name = random_weights(), "embeddings.token_type_embeddings.weight"
    folder = write_checkpoint(tmp_path / "checkpoint", weights={**weights, name: weights[name][:1]})
    edit_json(folder / "config.json", type_vocab_size=1)
    network = load_cross_encoder(folder)
    with pytest.raises(CorruptFile, match="type_vocab_size of 2 at least; found 1"):
        check_lengths(network, PairBatcher(network.tokenizer_path, 8, 8), 24)
