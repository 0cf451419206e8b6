"""The projection of a checkpoint: a linear layer between the network and the pooled vector.

It is in ``head.safetensors``, or a Dense module of sentence-transformers. A mean of projected vectors is the
projected mean, so the layer after the pooling of such a checkpoint is applied to every token here.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["HEAD_NAME", "PROJECTION", "new_projection", "read_projection", "read_projection_weights"]

HEAD_NAME = "head.safetensors"
"""The file of layers behind the network, such as a projection."""

PROJECTION = "projection."
"""Begins the names of its weights."""

_SETTINGS_NAME = "quarry.json"  # of checkpoints whose head is in `HEAD_NAME`, or that have none
_MODULES_NAME = "modules.json"
_DENSE_NAME = "model.safetensors"
_DENSE = "linear."


def new_projection(weights: torch.Tensor, biases: torch.Tensor | None = None) -> torch.nn.Linear:
    """Make a projection.

    Args:
        weights: (n_out, n_hidden) float32.
        biases: (n_out,) float32, or None.
    """
    layer = torch.nn.Linear(weights.shape[1], weights.shape[0], bias=biases is not None)
    with torch.no_grad():
        layer.weight.copy_(weights)
        if biases is not None:
            layer.bias.copy_(biases)
    return layer


def read_projection(folder: Path, n_hidden: int) -> torch.nn.Linear | None:
    """Read the projection of a checkpoint; None if there is none, as in one of Aggretriever.

    Args:
        folder: of the checkpoint.
        n_hidden: dimension of the network's hidden states.

    Raises:
        InvalidSetting: there are several layers, or one that is not linear.
        CorruptFile: a file cannot be read, or the layer does not fit the network.
    """
    path, tensors = _read_tensors(folder)
    weights, biases = (tensors.get(f"{PROJECTION}{name}") for name in ("weight", "bias"))
    if weights is None:
        return None
    if (
        weights.ndim != 2
        or weights.shape[1] != n_hidden
        or (biases is not None and biases.shape != weights.shape[:1])
    ):
        raise CorruptFile(
            "the projection does not fit the network",
            path=path,
            expected=f"weight (n, {n_hidden}), and bias (n,) or none",
            actual={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        )
    return new_projection(weights.float(), None if biases is None else biases.float())


def read_projection_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a checkpoint's projection, with names that begin with `PROJECTION`; none without one.

    Raises:
        InvalidSetting: there are several layers, or one that is not linear.
        CorruptFile: a file cannot be read.
    """
    return _read_tensors(folder)[1]


def _read_tensors(folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """Return the file of the projection, and its weights, which are empty if there is none."""
    path = folder / HEAD_NAME
    if path.is_file():
        return path, {name: values for name, values in _load(path).items() if name.startswith(PROJECTION)}
    dense = None if (folder / _SETTINGS_NAME).is_file() else _dense_folder(folder)
    if dense is None:
        return path, {}
    path = dense / _DENSE_NAME
    tensors = _load(path)
    if f"{_DENSE}weight" not in tensors:
        raise CorruptFile("a Dense module without weights", path=path, expected=f"{_DENSE}weight")
    return path, {
        PROJECTION + name.removeprefix(_DENSE): values
        for name, values in tensors.items()
        if name.startswith(_DENSE)
    }


def _dense_folder(folder: Path) -> Path | None:
    """Return the folder of the Dense module of a checkpoint of sentence-transformers, None if it has none."""
    path = folder / _MODULES_NAME
    if not path.is_file():
        return None
    try:
        modules = json.loads(path.read_text("utf-8"))
        names = [str(each["path"]) for each in modules if str(each["type"]).rsplit(".", 1)[-1] == "Dense"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptFile("not a list of modules with type and path", path=path) from error
    if not names:
        return None
    if len(names) > 1:
        raise InvalidSetting(
            "several layers behind the checkpoint's network", path=path, expected="one Dense module, or none"
        )
    dense = folder / names[0]
    if not dense.resolve().is_relative_to(folder.resolve()):
        raise CorruptFile("a module outside the checkpoint", path=path, actual=names[0])
    config = dense / "config.json"
    try:
        activation = str(json.loads(config.read_text("utf-8")).get("activation_function", "Tanh"))
    except (OSError, ValueError, AttributeError) as error:
        raise CorruptFile("not the configuration of a Dense module", path=config) from error
    if activation.rsplit(".", 1)[-1] != "Identity":
        raise InvalidSetting(
            "the layer behind the checkpoint's network cannot be trained",
            path=config,
            expected="the activation function Identity",
            actual=activation,
        )
    return dense


def _load(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CorruptFile(f"the weights cannot be read: {error}", path=path) from error
