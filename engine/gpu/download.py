"""The one way back from a device: arrays are copied in the background and waited for together."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

__all__ = ["download"]


def download(*tensors: torch.Tensor) -> list[npt.NDArray[Any]]:
    """Arrays with the contents of tensors of one device, once it has computed them.

    On the CPU device they share their memory.
    """
    copies = [each.to("cpu", non_blocking=True) for each in tensors]  # into page-locked memory
    if tensors[0].device.type == "cuda":
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [each.numpy() for each in copies]
