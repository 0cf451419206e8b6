"""A stream of a runtime's own on a CUDA device, whose results go to whoever called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from quarry.formats.errors import BackendUnavailable

__all__ = ["SideStream"]


class SideStream:
    """Where a runtime's work is queued; on the CPU device, where work is done at once, there is none.

    Args:
        place: the device.

    Raises:
        BackendUnavailable: torch cannot use it.
    """

    def __init__(self, place: torch.device) -> None:
        if place.type == "cuda" and not torch.cuda.is_available():
            raise BackendUnavailable(
                "torch cannot use CUDA here",
                expected="a torch built for CUDA",
                actual=f"torch {torch.__version__}",
            )
        self.place = place
        self._stream = torch.cuda.Stream(place) if place.type == "cuda" else None

    @property
    def handle(self) -> int:
        """What CUDA knows it by; 0 without one."""
        return 0 if self._stream is None else int(self._stream.cuda_stream)

    def active(self) -> AbstractContextManager[object]:
        """While it is entered, what libraries make is made on this device."""
        return nullcontext() if self._stream is None else torch.cuda.device(self.place)

    def run(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The result of some work, done on this stream.

        It is for what the calling thread queues on its current stream from now on, and for nothing else: that
        stream waits for the work, the thread does not.

        Args:
            work: queues everything on torch's current stream, and returns a tensor that nobody else writes to.
        """
        if self._stream is None:
            return work()
        with torch.cuda.stream(self._stream):
            result = work()
        caller = torch.cuda.current_stream(self.place)
        caller.wait_stream(self._stream)
        result.record_stream(caller)  # its memory is not used again before the caller's work on it is done
        return result
