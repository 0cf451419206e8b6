"""Raises KeyboardInterrupt at a chosen point where the interpreter checks for signals."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

_LOOKS = {"RESUME", "JUMP_BACKWARD"}  # and after each call


class Interrupt:
    """Raises KeyboardInterrupt at the n-th point.

    Args:
        moment: n, from 1; 0: points are only counted.
        files: names of the files whose code is interrupted.
    """

    def __init__(self, moment: int, files: set[str]) -> None:
        self._moment = moment
        self._files = files
        self._after_call: set[int] = set()
        self.n_places = 0
        self.where = ""

    @contextmanager
    def installed(self) -> Iterator[Interrupt]:
        """Trace functions that this thread calls from now on."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield self
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.where or Path(frame.f_code.co_filename).name not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and self._is_place(frame):
            self.n_places += 1
            if self.n_places == self._moment:
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace

    def _is_place(self, frame: FrameType) -> bool:
        name = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
        was_call = id(frame) in self._after_call
        self._after_call.discard(id(frame))
        if name.startswith("CALL"):
            self._after_call.add(id(frame))
        return was_call or name in _LOOKS
