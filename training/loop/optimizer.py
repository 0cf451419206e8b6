"""AdamW and its learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.model.network import Network

__all__ = ["OptimizerSettings", "learning_rate", "make_optimizer", "set_learning_rate"]

_SCHEDULES = ("constant", "linear")


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The ``[optimizer]`` table of a recipe.

    Attributes:
        learning_rate: the largest, above 0.
        warmup_steps: steps over which it grows to that, 0 or more.
        schedule: ``constant`` afterwards, or ``linear`` down to 0 at the last step.
        weight_decay: the decay of the weights of matrices; biases and normalizations have none.
        max_norm: the norm that larger gradients are scaled down to.
    """

    learning_rate: float = 2e-5
    warmup_steps: int = 0
    schedule: str = "constant"
    weight_decay: float = 0.01
    max_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.schedule not in _SCHEDULES:
            raise InvalidSetting("unknown schedule", expected=" or ".join(_SCHEDULES), actual=repr(self.schedule))
        if not (
            self.learning_rate > 0 and self.max_norm > 0 and self.weight_decay >= 0 and self.warmup_steps >= 0
        ):
            raise InvalidSetting("a setting of the optimizer is out of range", actual=self)


def learning_rate(settings: OptimizerSettings, step: int, n_steps: int) -> float:
    """Return the learning rate of a step, counted from 0, of a run of `n_steps`."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (n_steps - step) / max(1, n_steps - settings.warmup_steps)


def make_optimizer(
    network: Network, others: Mapping[str, tuple[torch.nn.Parameter, float]], settings: OptimizerSettings
) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019) for the network's trained parameters and for others.

    Args:
        network: its matrices have weight decay.
        others: by name, each with its factor of the learning rate.
        settings: the settings of the optimizer.

    Raises:
        InvalidSetting: all parameters are frozen.
    """
    decayed: list[torch.nn.Parameter] = []
    plain: list[torch.nn.Parameter] = []
    for _, parameter in network.trained_parameters():
        (decayed if parameter.ndim > 1 else plain).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay, "factor": 1.0},
        {"params": plain, "weight_decay": 0.0, "factor": 1.0},
        *({"params": [parameter], "weight_decay": 0.0, "factor": factor} for parameter, factor in others.values()),
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise InvalidSetting("nothing is left to train", expected="a parameter that is not frozen")
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group: `rate` times the group's own factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
