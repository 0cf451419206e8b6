"""Transfers between host and device memory, through page-locked buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["download", "send", "upload"]


_STAGE_BYTES = 1 << 25  # of page-locked memory at a time


def upload(
    read: Callable[[int, int], npt.NDArray[Any]],
    n_rows: int,
    place: torch.device,
    stage_bytes: int = _STAGE_BYTES,
) -> torch.Tensor:
    """Copy the rows that `read(low, high)` returns, for example from a mapped file, to a tensor on `place`.

    Two buffers of bounded size alternate, so that reading and sending overlap.

    Args:
        read: returns the rows low to high - 1 of an array of any shape and dtype.
        n_rows: number of rows, at least 1.
        place: the device.
        stage_bytes: the size of a buffer in bytes, which has at least one row.
    """
    row = read(0, 1)
    kind = _torch_dtype(row)
    target = torch.empty((n_rows, *row.shape[1:]), dtype=kind, device=place)
    step = min(n_rows, max(1, stage_bytes // row.nbytes))
    stages = [_Stage((step, *row.shape[1:]), kind, place) for _ in range(2)]
    for number, low in enumerate(range(0, n_rows, step)):
        high = min(low + step, n_rows)
        stages[number % 2].send(read(low, high), target[low:high])
    for stage in stages:
        stage.wait()
    return target


def send(values: npt.NDArray[Any], place: torch.device) -> torch.Tensor:
    """Copy a small array to a device on the current stream, without waiting for the work queued on it.

    The page-locked buffer belongs to torch's caching allocator, which keeps it until the copy is done.
    """
    stage = torch.empty(values.shape, dtype=_torch_dtype(values), pin_memory=place.type == "cuda")
    stage.numpy()[...] = values
    return stage.to(place, non_blocking=True)


def _torch_dtype(values: npt.NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, values.dtype)).dtype


class _Stage:
    """A buffer on the host; page-locked for a CUDA device, which reads it asynchronously."""

    def __init__(self, shape: tuple[int, ...], kind: torch.dtype, place: torch.device) -> None:
        self._sent = torch.cuda.Event() if place.type == "cuda" else None
        self._buffer = torch.empty(shape, dtype=kind, pin_memory=self._sent is not None)

    def send(self, values: npt.NDArray[Any], target: torch.Tensor) -> None:
        """Copy to the device, asynchronously if possible."""
        self.wait()
        self._buffer.numpy()[: len(values)] = values
        target.copy_(self._buffer[: len(values)], non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(target.device))

    def wait(self) -> None:
        """Wait until the buffer may be written again."""
        if self._sent is not None:
            self._sent.synchronize()


def download(*tensors: torch.Tensor) -> list[npt.NDArray[Any]]:
    """Return the contents of tensors of one device as arrays, when the device has computed them.

    Tensors of the CPU device share their memory with the arrays.
    """
    copies = [each.to("cpu", non_blocking=True) for each in tensors]  # into page-locked memory
    if tensors[0].device.type == "cuda":
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [each.numpy() for each in copies]
