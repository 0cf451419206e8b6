"""Weights rounded as an int8 export rounds them, for training that takes their error into account."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch

from quarry.training.model.network import Network

__all__ = ["round_rows", "rounded_weights"]

_LARGEST_CODE = 64  # 7 of 8 bits; see `quarry.exporters.precision.int8.quantize_int8`


def rounded_weights(network: Network) -> ExitStack:
    """Round the weights of linear layers until the context that is returned ends; then they are as before.

    Gradients that are computed within the context are those of the loss at the rounded weights, and the optimizer
    applies them to the weights themselves, as if rounding were the identity (the straight-through estimator,
    Bengio et al. 2013; BinaryConnect, Courbariaux et al. 2015, Algorithm 1). So training moves weights to where
    their rounded values are good. An int8 export rounds embedding tables and activations, too; those stay.

    Args:
        network: whose layers are rounded.
    """
    layers = [module for module in network.model.modules() if isinstance(module, torch.nn.Linear)]
    context = ExitStack()
    context.callback(_set_weights, layers, [layer.weight.detach().clone() for layer in layers])
    _set_weights(layers, [round_rows(layer.weight.detach()) for layer in layers])
    return context


def _set_weights(layers: Sequence[torch.nn.Linear], weights: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight.copy_(weight)


def round_rows(weight: torch.Tensor) -> torch.Tensor:
    """Round each row to multiples of a 64th of its largest element.

    Args:
        weight: (n_out, n_in) float32, a linear layer's; each output channel has a scale of its own.

    Returns:
        the same shape; a row of zeros stays one.
    """
    scales = weight.detach().abs().amax(1, keepdim=True) / _LARGEST_CODE
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    return (weight / scales).round().clamp(-_LARGEST_CODE, _LARGEST_CODE) * scales
