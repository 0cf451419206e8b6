"""A side stream on a CUDA device, for a runtime whose results are used on the caller's stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from quarry.formats.errors import BackendUnavailable

__all__ = ["SideStream"]

_ONE_CAPTURE = threading.Lock()


class SideStream:
    """The stream that a runtime queues its work on; none on the CPU device, which works synchronously.

    Raises:
        BackendUnavailable: torch cannot use the device.
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
        self._pool: object = None

    @property
    def handle(self) -> int:
        """The CUDA handle of the stream; 0 without one."""
        return 0 if self._stream is None else int(self._stream.cuda_stream)

    def active(self) -> AbstractContextManager[object]:
        """Return a context in which libraries allocate on this device."""
        return nullcontext() if self._stream is None else torch.cuda.device(self.place)

    def run(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Queue work on this stream and return its result.

        The result may be used by what the calling thread queues on its current stream from now on: that stream
        waits for the work, the thread does not.

        Args:
            work: queues everything on torch's current stream, and returns a tensor that is not written to later.
        """
        if self._stream is None:
            return work()
        with torch.cuda.stream(self._stream):
            result = work()
        caller = torch.cuda.current_stream(self.place)
        caller.wait_stream(self._stream)
        result.record_stream(caller)  # its memory is not used again before the caller's work on it is done
        return result

    def capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Return a CUDA graph that does work, which is queued on torch's current stream.

        The work is done once before, since the first run for a shape may allocate memory of libraries. Other
        threads may use the device during a capture, but each capture waits for the whole device first. The graphs
        of a stream share memory: a result is overwritten by any of them.
        """
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        work()
        here = torch.cuda.current_stream()
        here.synchronize()
        graph = torch.cuda.CUDAGraph()
        with _ONE_CAPTURE, torch.cuda.graph(graph, self._pool, here, "thread_local"):
            work()
        return graph
