"""The projection of a checkpoint: a linear layer between the network and the pooled vector.

It is in ``head.safetensors``, or a Dense module of sentence-transformers. A mean of projected vectors is the
projected mean, so the layer after the pooling of such a checkpoint is applied to every token here. `whitening`
makes a projection after training, so that the dimensions of vectors are more alike in variance.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["HEAD_NAME", "PROJECTION", "new_projection", "read_projection", "read_projection_weights", "whitening"]

HEAD_NAME = "head.safetensors"
"""The file of layers behind the network, such as a projection."""

PROJECTION = "projection."
"""Begins the names of its weights."""

_SETTINGS_NAME = "quarry.json"  # of checkpoints whose head is in `HEAD_NAME`, or that have none
_MODULES_NAME = "modules.json"
_DENSE_NAME = "model.safetensors"
_DENSE = "linear."


def new_projection(
    weights: torch.Tensor, biases: torch.Tensor | None = None, before: torch.nn.Linear | None = None
) -> torch.nn.Linear:
    """Make a projection.

    Args:
        weights: (n_out, n_hidden) float32.
        biases: (n_out,) float32, or None.
        before: a projection that is applied first, without `biases`; the new one does both. None: there is none.
    """
    if before is not None:
        biases = None if before.bias is None else weights @ before.bias.detach().cpu()
        weights = weights @ before.weight.detach().cpu()
    layer = torch.nn.Linear(weights.shape[1], weights.shape[0], bias=biases is not None)
    with torch.no_grad():
        layer.weight.copy_(weights)
        if biases is not None:
            layer.bias.copy_(biases)
    return layer


def read_projection(folder: Path, n_hidden: int) -> torch.nn.Linear | None:
    """Read the projection of a checkpoint; None if there is none, as in one of Aggretriever.

    Args:
        folder: the folder of the checkpoint.
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


def whitening(vectors: Sequence[torch.Tensor], weights: Sequence[float], shrinkage: float) -> torch.Tensor:
    """Compute the linear map that whitens vectors of several sources, in part.

    Vectors of texts vary much in a few directions, which then decide cosines. The map is (C + shrinkage c I)^-0.5
    with the covariance C and the mean c of its eigenvalues (whitening of sentence vectors: Su et al. 2021; of all
    such maps the symmetric one changes vectors least: Kessy et al. 2018). The larger the shrinkage (Ledoit and
    Wolf 2004), the nearer it is to a multiple of the identity. C is the mean of the sources' covariances, each
    about the mean of its source and divided by its trace: how far apart the sources are does not count.

    Args:
        vectors: the vectors of each source: (n, dim) float32, n above 1.
        weights: the weights of each source, above 0.
        shrinkage: above 0.

    Returns:
        (dim, dim) float32, symmetric, scaled so that the squares of its elements have the sum dim.

    Raises:
        InvalidSetting: vectors of a source are all alike, or not finite, or there are fewer than two.
    """
    total = torch.zeros(vectors[0].shape[1], vectors[0].shape[1], dtype=torch.float64)
    for each, weight in zip(vectors, weights, strict=True):
        centered = each.double() - each.double().mean(0)
        covariance = centered.T @ centered
        trace = float(covariance.trace())
        if not 0 < trace < float("inf"):
            raise InvalidSetting(
                "vectors cannot be whitened",
                expected="two or more documents that differ",
                actual=tuple(each.shape),
            )
        total += weight * covariance / trace
    values, axes = torch.linalg.eigh(total / sum(weights))
    matrix = (axes * (values.clamp(min=0) + shrinkage * values.mean()) ** -0.5) @ axes.T
    return (matrix * (len(matrix) / (matrix**2).sum()).sqrt()).float()
