"""The folder of a trained encoder, as ``quarry export`` and transformers read it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from quarry.formats.errors import InvalidSetting
from quarry.training.model.network import EncoderNetwork

__all__ = ["EncoderFiles", "interpolate_weights", "write_checkpoint"]

WEIGHTS_NAME = "model.safetensors"
_COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "LICENSE", "NOTICE")


@dataclass(frozen=True)
class EncoderFiles:
    """What a checkpoint says beside its weights.

    Attributes:
        pooling: of queries.
        normalize: whether vectors have L2 norm 1.
        beta: inverse temperature of the softmax aggregation, or None.
        representation: name of the engine's representation it was trained for.
        window: most tokens read at once, special tokens included.
        query_prefix: before queries.
        document_prefix: before documents.
        card: README.md, with the licence in its front matter.
    """

    pooling: str
    normalize: bool
    beta: float | None
    representation: str
    window: int
    query_prefix: str
    document_prefix: str
    card: str

    def settings(self) -> dict[str, object]:
        """The members of quarry.json."""
        return {
            "format": 1,
            "pooling": self.pooling,
            "normalise": self.normalize,
            "window": self.window,
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
            "beta": self.beta,
            "representation": self.representation,
        }


def write_checkpoint(network: EncoderNetwork, files: EncoderFiles, folder: Path) -> None:
    """Write weights in float32, tokenizer, configuration and quarry.json into a new folder."""
    folder.mkdir(parents=True)
    for name in _COPIED:
        if (network.folder / name).is_file():
            shutil.copyfile(network.folder / name, folder / name)
    (folder / "quarry.json").write_text(json.dumps(files.settings(), indent=1), "utf-8")
    (folder / "README.md").write_text(files.card, "utf-8")
    save_file(_weights(network.model.state_dict()), folder / WEIGHTS_NAME, {"format": "pt"})


def interpolate_weights(model: torch.nn.Module, original: Path, share: float) -> dict[str, torch.Tensor]:
    """Mix a model's weights with those of the checkpoint it started from (Wortsman et al. 2022, Eq. 1).

    Fine-tuning gains on what it was trained on and loses a little elsewhere; between the two sets of weights
    most of the gain stays and most of the loss goes.

    Args:
        model: the trained one; stays as it is.
        original: the folder of the checkpoint.
        share: of the original, 0 to 1.

    Returns:
        the mixed state.

    Raises:
        InvalidSetting: the share is out of range, or a weight of the model is missing in the checkpoint.
    """
    if not 0 <= share <= 1:
        raise InvalidSetting("the share of the original weights is out of range", expected="0 to 1", actual=share)
    before = {_plain(name): values for name, values in load_file(original / WEIGHTS_NAME).items()}
    mixed = {}
    for name, values in _weights(model.state_dict()).items():
        if name not in before or before[name].shape != values.shape:
            raise InvalidSetting("the checkpoint lacks a weight of the model", path=original, expected=name)
        mixed[name] = values if share == 0 else (1 - share) * values + share * before[name].float()
    return mixed


def _weights(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    floats = {name: values for name, values in state.items() if values.is_floating_point()}
    return {name: values.detach().cpu().float().contiguous().clone() for name, values in floats.items()}


def _plain(name: str) -> str:
    return (
        name.removeprefix("bert.")
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias")
    )
