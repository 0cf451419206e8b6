"""Transfers between host and device memory, through page-locked buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["download", "send", "upload"]


_STAGE_BYTES = 1 << 25


def upload(read: Callable[[int, int], npt.NDArray[Any]], n_rows: int, place: torch.device) -> torch.Tensor:
    """A tensor on `place` with the rows that `read(low, high)` gives, as out of a mapped file.

    Two buffers of bounded size take turns, so that reading and sending overlap.

    Args:
        read: gives the rows low to high - 1 of an array of any shape and type, n_rows at least 1 in all.
        n_rows: how many there are.
        place: the device.
    """
    row = read(0, 1)
    kind = _kind(row)
    target = torch.empty((n_rows, *row.shape[1:]), dtype=kind, device=place)
    step = min(n_rows, max(1, _STAGE_BYTES // row.nbytes))
    stages = [_Stage((step, *row.shape[1:]), kind, place) for _ in range(2)]
    for number, low in enumerate(range(0, n_rows, step)):
        high = min(low + step, n_rows)
        stages[number % 2].send(read(low, high), target[low:high])
    for stage in stages:
        stage.wait()
    return target


def send(values: npt.NDArray[Any], place: torch.device) -> torch.Tensor:
    """A copy of a small array on a device, for the current stream.

    It does not wait for what that stream has to do before, as a copy out of ordinary memory would. Its page-locked
    memory is torch's, which keeps it until it was read.
    """
    stage = torch.empty(values.shape, dtype=_kind(values), pin_memory=place.type == "cuda")
    stage.numpy()[...] = values
    return stage.to(place, non_blocking=True)


def _kind(values: npt.NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, values.dtype)).dtype


class _Stage:
    """One buffer on the host; page-locked where the device is CUDA's, which reads it in the background."""

    def __init__(self, shape: tuple[int, ...], kind: torch.dtype, place: torch.device) -> None:
        self._sent = torch.cuda.Event() if place.type == "cuda" else None
        self._buffer = torch.empty(shape, dtype=kind, pin_memory=self._sent is not None)

    def send(self, values: npt.NDArray[Any], target: torch.Tensor) -> None:
        """Copy to the device, in the background where that is possible."""
        self.wait()
        self._buffer.numpy()[: len(values)] = values
        target.copy_(self._buffer[: len(values)], non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(target.device))

    def wait(self) -> None:
        """Until the buffer may be written again."""
        if self._sent is not None:
            self._sent.synchronize()


def download(*tensors: torch.Tensor) -> list[npt.NDArray[Any]]:
    """Arrays with the contents of tensors of one device, once it has computed them.

    On the CPU device they share their memory.
    """
    copies = [each.to("cpu", non_blocking=True) for each in tensors]  # into page-locked memory
    if tensors[0].device.type == "cuda":
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [each.numpy() for each in copies]
