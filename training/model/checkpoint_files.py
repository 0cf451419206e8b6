"""The folder of a trained encoder, as ``quarry export`` and transformers read it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.model.network import EncoderNetwork, Network, read_weights

__all__ = ["EncoderFiles", "interpolate_weights", "read_use", "write_checkpoint", "write_network"]

_USE_NAME = "quarry.json"
_COPIED_NAMES = ("config.json", "tokenizer.json", "tokenizer_config.json", "LICENSE", "NOTICE")


@dataclass(frozen=True)
class EncoderFiles:
    """Contents of a checkpoint beside its weights.

    Attributes:
        pooling: the pooling of queries.
        normalize: whether vectors have L2 norm 1.
        beta: inverse temperature of the softmax aggregation, or None.
        representation: name of the engine's representation it was trained for.
        window: most tokens read at once, special tokens included.
        query_prefix: before queries.
        document_prefix: before documents.
        card: README.md, with the licence in its front matter.
        representation_settings: the settings of the representation, such as the length of passages.
    """

    pooling: str
    normalize: bool
    beta: float | None
    representation: str
    window: int
    query_prefix: str
    document_prefix: str
    card: str
    representation_settings: Mapping[str, int] = field(default_factory=dict)

    def settings(self) -> dict[str, object]:
        """The members of quarry.json."""
        settings: dict[str, object] = {
            "format": 1,
            "pooling": self.pooling,
            "normalise": self.normalize,
            "window": self.window,
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
            "beta": self.beta,
            "representation": self.representation,
        }
        if self.representation_settings:
            settings["representation_settings"] = dict(self.representation_settings)
        return settings


def write_checkpoint(
    network: EncoderNetwork,
    files: EncoderFiles,
    folder: Path,
    save_parts: Callable[[Path], Mapping[str, object]] = lambda _: {},
) -> None:
    """Write weights in float32, tokenizer, configuration and quarry.json into a new folder.

    Args:
        network: the weights.
        files: what else a checkpoint says.
        folder: to make.
        save_parts: writes what follows the network into the folder, and returns more members of quarry.json.
    """
    write_network(network, folder, files.card)
    settings = files.settings() | dict(save_parts(folder))
    (folder / _USE_NAME).write_text(json.dumps(settings, indent=1), "utf-8")


def read_use(folder: Path) -> dict[str, object]:
    """Read the members of a checkpoint's quarry.json, see `EncoderFiles.settings`; none without the file.

    Raises:
        CorruptFile: it is not a JSON object.
    """
    path = folder / _USE_NAME
    try:
        members = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise CorruptFile(f"not JSON: {error}", path=path) from error
    if not isinstance(members, dict):
        raise CorruptFile("not a JSON object", path=path, actual=type(members).__name__)
    return members


def write_network(network: Network, folder: Path, card: str) -> None:
    """Write weights in float32, and the tokenizer and configuration of the checkpoint, into a new folder.

    Args:
        network: the weights.
        folder: to make.
        card: README.md.
    """
    folder.mkdir(parents=True)
    for name in _COPIED_NAMES:
        if (network.folder / name).is_file():
            shutil.copyfile(network.folder / name, folder / name)
    (folder / "README.md").write_text(card, "utf-8")
    for name, weights in network.files().items():
        save_file(weights, folder / name, {"format": "pt"})


def interpolate_weights(network: Network, original: Path, share: float) -> dict[str, torch.Tensor]:
    """Mix a model's weights with those of the checkpoint it started from (Wortsman et al. 2022, Eq. 1).

    Fine-tuning gains on what it was trained on and loses a little elsewhere; between the two sets of weights
    most of the gain stays and most of the loss goes.

    Args:
        network: the trained one; stays unchanged.
        original: the folder of the checkpoint.
        share: the share of the original, 0 to 1.

    Returns:
        the mixed state.

    Raises:
        InvalidSetting: the share is out of range, or a weight of the model is missing in the checkpoint.
    """
    if not 0 <= share <= 1:
        raise InvalidSetting("the share of the original weights is out of range", expected="0 to 1", actual=share)
    prefix = f"{getattr(network.model, 'base_model_prefix', 'bert')}."
    before = {_plain(name, prefix): values for name, values in read_weights(original).items()}
    mixed = {}
    for name, values in network.weights().items():
        if name not in before or before[name].shape != values.shape:
            raise InvalidSetting("the checkpoint lacks a weight of the model", path=original, expected=name)
        mixed[name] = values if share == 0 else (1 - share) * values + share * before[name].float()
    return mixed


def _plain(name: str, prefix: str) -> str:
    return (
        name.removeprefix(prefix)
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias")
    )
