"""Progress of long work: a bar on a terminal, a callback, or nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["Progress", "ProgressSetting"]

ProgressSetting = bool | Callable[[int, int | None], None] | None
"""True: a bar; False: nothing; None: a bar where standard error is a terminal; or a function that is
called with (n_done, n_total), n_total None where it is not known."""


class Progress:
    """Shows how far one piece of work on documents has come. A context manager: the bar is closed at its end.

    Args:
        setting: who wants to see it.
        label: what is being done to documents, in a word or two.
    """

    def __init__(self, setting: ProgressSetting, label: str) -> None:
        self._callback = setting if callable(setting) else None
        self._bar = _bar(label) if _is_shown(setting) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, n_done: int, n_total: int | None = None) -> None:
        """Say that ``n_done`` of ``n_total`` are done so far; the total may be an estimate that changes."""
        if self._callback is not None:
            self._callback(n_done, n_total)
        if self._bar is not None:
            self._bar.total = n_total
            self._bar.update(n_done - self._bar.n)


def _is_shown(setting: ProgressSetting) -> bool:
    """Whether there is to be a bar; a program without a console has nowhere to show it."""
    if sys.stderr is None:
        return False
    return sys.stderr.isatty() if setting is None else setting is True


def _bar(label: str) -> tqdm[None]:
    from tqdm import tqdm

    size = shutil.get_terminal_size()  # tqdm itself shows nothing on a terminal that does not tell its size
    return tqdm(desc=label, unit=" documents", file=sys.stderr, ncols=size.columns, nrows=size.lines)
