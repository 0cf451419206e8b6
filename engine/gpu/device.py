"""Which device the GPU backend works on, and how many bytes of its memory the segments of an index may take."""

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
# Of the budget for what a search computes: an eighth, up to 512 MiB, or if that is more a 32nd, up to 4 GiB, so
# that 256 queries choose among 2 million documents at once.
_WORK_SHARES = ((8, 1 << 29), (32, 1 << 32))
_LEAST_WORK_BYTES = 1 << 20
_HOST_WORK_BYTES = 1 << 26


class Device:
    """A torch device and a budget of its memory, shared by the segments of one searcher; thread-safe.

    Making one imports nothing: torch is loaded when the device is first used.

    Args:
        name: "cuda", "cuda:1", "cpu"; None: the first CUDA device.
        limit_bytes: bytes of the device's memory to use, intermediate results included; None: nine tenths of
            what is free at first use (on "cpu": no limit).
    """

    def __init__(self, name: str | None = None, limit_bytes: int | None = None) -> None:
        self.name = name or "cuda"
        self._asked_bytes = limit_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    @cached_property
    def place(self) -> torch.device:
        """The device, as torch names it.

        Raises:
            BackendUnavailable: there is no such device.
            InvalidSetting: torch knows no device of that name, or it is neither a CUDA device nor the CPU.
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
        """While it is entered, kernels are launched on this device."""
        import torch

        return torch.cuda.device(self.place) if self.place.type == "cuda" else nullcontext()

    @cached_property
    def kernels(self) -> SimpleNamespace | None:
        """`quarry.engine.gpu.kernels` on a CUDA device: those that agree with torch there, else None."""
        if self.place.type != "cuda":
            return None
        from quarry.engine.gpu.kernel_check import sound_kernels

        try:
            kernels = import_module("quarry.engine.gpu.kernels")
        except ImportError:
            return None
        with self.active():
            return sound_kernels(kernels, self.place)

    def disable_kernels(self) -> None:
        """Compute in plain torch from now on, for a comparison; what is open already keeps its kernels."""
        self.kernels = None

    def kernel(self, name: str) -> Callable[..., Any] | None:
        """The kernel of that name; None where torch is to be used."""
        found: Callable[..., Any] | None = getattr(self.kernels, name, None)
        return found

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What torch, Triton and the driver raise when the device fails, for want of memory, say."""
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
        """How much of the budget is for intermediate results, not for segments."""
        shares = [min(self.limit_bytes // share, most) for share, most in _WORK_SHARES]
        wanted = min(max(shares), _HOST_WORK_BYTES) if self.place.type == "cpu" else max(shares)
        return max(wanted, _LEAST_WORK_BYTES)

    @property
    def left_bytes(self) -> int:
        """Bytes that segments can still take."""
        return max(0, self.limit_bytes - self.work_bytes - self._used_bytes)

    def reserve(self, n_bytes: int) -> bool:
        """Take `n_bytes` of the budget if they are left; whether they were."""
        with self._lock:
            if n_bytes > self.left_bytes:
                return False
            self._used_bytes += n_bytes
            return True

    def trim(self) -> None:
        """Give the device's memory that is free again, and that torch keeps for later, back to other libraries."""
        if "place" in self.__dict__ and self.place.type == "cuda":  # torch was loaded, and used it
            import torch

            torch.cuda.empty_cache()

    def release(self, n_bytes: int) -> None:
        """Give back what `reserve` took."""
        with self._lock:
            self._used_bytes -= n_bytes
