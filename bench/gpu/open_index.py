"""The GPU backend opened for a measurement: with its kernels, or in plain torch."""

from __future__ import annotations

import torch

from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.protocol import Resources
from quarry.engine.gpu.device import Device
from quarry.formats.snapshot import OpenSegment

__all__ = ["open_on", "ways"]


def ways(place: torch.device) -> list[bool]:
    """Whether to use kernels: both ways where there are kernels, else only without."""
    return [False] if Device(str(place)).kernels is None else [True, False]


def open_on(
    place: torch.device, segment: OpenSegment, *, kernels: bool, limit_bytes: int | None = None
) -> GpuBackend:
    """Open the backend; without `kernels` in plain torch even where Triton is there."""
    device = Device(str(place), limit_bytes)
    if not kernels:
        device.kernels = None
    return GpuBackend(segment, Resources(device=device))
