"""Query vectors that stay on a device until they are needed in main memory."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from quarry.formats.arrays import Float32Array

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceVectors"]


class DeviceVectors:
    """Query vectors on a device.

    Must be used by the thread that made them, so that its kernels are ordered after those that compute them.

    Args:
        values: (n, dim) float32; must not be written to any more.
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
    def host(self) -> Float32Array:
        """The vectors in main memory, (n, dim) float32; copied at the first access, which waits for them."""
        from quarry.engine.gpu.transfer import download

        vectors: Float32Array = download(self.values)[0]
        return vectors
