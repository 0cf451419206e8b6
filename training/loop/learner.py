"""The interface of what a `quarry.training.loop.trainer.Trainer` trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch

from quarry.training.data.batches import Batch
from quarry.training.model.network import Network

__all__ = ["Learner"]


class Learner(Protocol):
    """A network, and the gradient of a batch of queries and documents.

    Attributes:
        network: what is trained.
    """

    @property
    def network(self) -> Network: ...  # noqa: D102

    def parameters(self) -> Mapping[str, tuple[torch.nn.Parameter, float]]:
        """Trained parameters beside the network's, by name, each with its factor of the learning rate."""
        ...

    def backward(self, batch: Batch, step: int) -> dict[str, float]:
        """Add the gradients of a batch to the parameters' and return the terms of the loss by name.

        Random draws depend on the learner's seed and the step's number alone.
        """
        ...

    def validate(self) -> float | None:
        """nDCG@10 of the network as it is on held-out queries; None without any."""
        ...

    def write(self, folder: Path) -> None:
        """Write the checkpoint into a new folder."""
        ...

    def trained_weights(self, folder: Path) -> Path:
        """The folder of the network's weights in a checkpoint that `write` wrote: that, or one in it."""
        ...
