"""Vectors that are on a device and stay there until somebody asks for them in main memory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceVectors"]


class DeviceVectors:
    """Query vectors on a device.

    To be used by the thread that made them: what it starts on the device comes after what computes them.

    Args:
        values: (n, dim) float32, not written to any more.
    """

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, int]:
        """(n, dim)."""
        return self.values.shape[0], self.values.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeviceVectors:
        return DeviceVectors(self.values[rows])

    @cached_property
    def host(self) -> npt.NDArray[np.float32]:
        """The same in main memory, (n, dim) float32; copied once, and waited for."""
        from quarry.engine.gpu.transfer import download

        vectors: npt.NDArray[np.float32] = download(self.values)[0]
        return vectors
