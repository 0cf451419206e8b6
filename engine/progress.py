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
"""True: a bar; False: nothing; None: a bar if standard error is a terminal; or a function that is called with
(n_done, n_total); n_total is None if it is not known."""


class Progress:
    """Shows the progress of work on documents; a context manager, which closes the bar.

    Args:
        setting: how progress is reported.
        label: of the bar: what is done to documents, in a word or two.
    """

    def __init__(self, setting: ProgressSetting, label: str) -> None:
        self._callback = setting if callable(setting) else None
        self._bar = _make_bar(label) if _is_shown(setting) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, n_done: int, n_total: int | None = None) -> None:
        """Report that ``n_done`` of ``n_total`` documents are done; the total may be an estimate that changes."""
        if self._callback is not None:
            self._callback(n_done, n_total)
        if self._bar is not None:
            self._bar.total = n_total
            self._bar.update(n_done - self._bar.n)


def _is_shown(setting: ProgressSetting) -> bool:
    """Return whether a bar is shown; a program without a console has no standard error."""
    if sys.stderr is None:
        return False
    return sys.stderr.isatty() if setting is None else setting is True


def _make_bar(label: str) -> tqdm[None]:
    from tqdm import tqdm

    size = shutil.get_terminal_size()  # tqdm shows nothing if the terminal does not report its size
    return tqdm(desc=label, unit=" documents", file=sys.stderr, ncols=size.columns, nrows=size.lines)
