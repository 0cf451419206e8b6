"""A torch device with a budget of its memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from quarry.formats.errors import BackendUnavailable, InvalidSetting

if TYPE_CHECKING:
    import torch

__all__ = ["Device"]

_SHARE_OF_FREE = 0.9  # of the memory that is free when the device is first used
# Workspace of a search: an eighth of the budget up to 512 MiB, or if larger a 32nd up to 4 GiB, enough for the
# scores of 256 queries and 2 million documents.
_WORK_SHARES = ((8, 1 << 29), (32, 1 << 32))
_LEAST_WORK_BYTES = 1 << 20  # of a batch, even if less memory is left
_HOST_WORK_BYTES = 1 << 26  # of a batch at most, if the device is the CPU


class Device:
    """A torch device and a budget of its memory, shared by all segments of an index; thread-safe.

    Torch is imported when the device is first used.

    Args:
        name: "cuda", "cuda:1", "cpu"; None: the first CUDA device.
        limit_bytes: bytes of the device's memory to use, intermediate results included; None: nine tenths of
            what is free at first use (on "cpu": no limit).

    Attributes:
        used_bytes: what segments have reserved.
    """

    def __init__(self, name: str | None = None, limit_bytes: int | None = None) -> None:
        self.name = name or "cuda"
        self._asked_bytes = limit_bytes
        self.used_bytes = 0
        self._lock = threading.Lock()

    @cached_property
    def place(self) -> torch.device:
        """The torch device.

        Raises:
            BackendUnavailable: there is no such device.
            InvalidSetting: the name is unknown to torch, or is neither a CUDA device nor the CPU.
        """
        import torch

        try:
            place = torch.device(self.name)
        except RuntimeError as error:
            raise InvalidSetting("unknown device", expected="cuda, cuda:N or cpu", actual=self.name) from error
        if place.type not in ("cuda", "cpu"):
            raise InvalidSetting("unknown device", expected="cuda, cuda:N or cpu", actual=self.name)
        if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
            raise BackendUnavailable(
                f"backend gpu: there is no device {self.name}; device='cpu' runs the same code, slowly",
                expected="a CUDA device, its driver, and a torch built for CUDA",
                actual=f"torch {torch.__version__}, {torch.cuda.device_count()} CUDA devices",
            )
        return place

    def active(self) -> AbstractContextManager[object]:
        """Return a context in which kernels are launched on this device."""
        import torch

        return torch.cuda.device(self.place) if self.place.type == "cuda" else nullcontext()

    @cached_property
    def kernels(self) -> SimpleNamespace | None:
        """The Triton kernels that agree with torch on this CUDA device; None on the CPU or if none does."""
        if self.place.type != "cuda":
            return None
        from quarry.engine.gpu.kernel_check import find_sound_kernels

        try:
            kernels = import_module("quarry.engine.gpu.kernels")
        except ImportError:
            return None
        with self.active():
            return find_sound_kernels(kernels, self.place)

    def disable_kernels(self) -> None:
        """Compute in plain torch from now on, for a comparison; what is open already keeps its kernels."""
        self.kernels = None

    def kernel(self, name: str) -> Callable[..., Any] | None:
        """Return the kernel of that name; None if torch has to be used."""
        function: Callable[..., Any] | None = getattr(self.kernels, name, None)
        return function

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """The exceptions that torch, Triton and the driver raise when a device fails, as for lack of memory."""
        triton = sys.modules.get("triton.errors")
        return (RuntimeError,) if triton is None else (RuntimeError, triton.TritonError)

    @cached_property
    def limit_bytes(self) -> int:
        """The budget in bytes."""
        if self._asked_bytes is not None:
            return self._asked_bytes
        if self.place.type == "cpu":
            return 1 << 62
        import torch

        free, _ = torch.cuda.mem_get_info(self.place)
        return int(free * _SHARE_OF_FREE)

    @cached_property
    def work_bytes(self) -> int:
        """The part of the budget that is reserved for intermediate results."""
        shares = [min(self.limit_bytes // share, most) for share, most in _WORK_SHARES]
        wanted = min(max(shares), _HOST_WORK_BYTES) if self.place.type == "cpu" else max(shares)
        return max(wanted, _LEAST_WORK_BYTES)

    @property
    def left_bytes(self) -> int:
        """Bytes that segments can still take."""
        return max(0, self.limit_bytes - self.work_bytes - self.used_bytes)

    def reserve(self, n_bytes: int) -> bool:
        """Reserve `n_bytes` of the budget; return whether they were left."""
        with self._lock:
            if n_bytes > self.left_bytes:
                return False
            self.used_bytes += n_bytes
            return True

    def trim(self) -> None:
        """Return the free memory that torch caches to the driver, for other libraries."""
        if "place" in self.__dict__ and self.place.type == "cuda":  # the device was used
            import torch

            torch.cuda.empty_cache()

    def release(self, n_bytes: int) -> None:
        """Return `n_bytes` to the budget."""
        with self._lock:
            self.used_bytes -= n_bytes
