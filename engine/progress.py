"""Progress of long work: a bar on a terminal, a callback, or nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["Progress", "ProgressParts", "ProgressSetting", "Report", "count_items", "no_report"]

T = TypeVar("T")

Report = Callable[[int, int | None], None]
"""A function of (number of documents done, total number or None)."""

ProgressSetting = bool | Report | None
"""True: a bar; False: nothing; None: a bar if standard error is a terminal; or a function that is called with
(n_done, n_total) on the calling thread; n_total is None if it is not known. Its errors end the work."""


class Progress:
    """Shows the progress of work on documents; a context manager, which closes the bar.

    Args:
        setting: how progress is reported.
        label: the label of the bar: what is done to documents, in a word or two.
    """

    def __init__(self, setting: ProgressSetting, label: str) -> None:
        self._callback = setting if callable(setting) else None
        self._bar = _make_bar(label) if _is_shown(setting) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    @property
    def is_shown(self) -> bool:
        """Whether anything is reported."""
        return self._callback is not None or self._bar is not None

    def update(self, n_done: int, n_total: int | None = None) -> None:
        """Report that ``n_done`` of ``n_total`` documents are done; the total may be an estimate that changes."""
        if self._callback is not None:
            self._callback(n_done, n_total)
        if self._bar is not None:
            self._bar.total = n_total
            self._bar.update(n_done - self._bar.n)


class ProgressParts:
    """The progress of work in several parts, such as the shards of an index, which begin one after another.

    Args:
        report: called with the sums over all parts that were begun; the total grows with each part.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._parts: list[tuple[int, int]] = []

    def part(self) -> Report:
        """Return the function that the next part reports to."""
        number = len(self._parts)
        self._parts.append((0, 0))

        def report(n_done: int, n_total: int | None) -> None:
            self._parts[number] = n_done, n_done if n_total is None else n_total
            self._report(sum(done for done, _ in self._parts), sum(total for _, total in self._parts))

        return report


def no_report(n_done: int, n_total: int | None) -> None:
    """Ignore progress."""


def count_items(items: Iterable[T], progress: Progress, n_expected: Callable[[], int | None]) -> Iterator[T]:
    """Yield items; each is reported as done when the next one is requested.

    Args:
        items: such as documents.
        progress: shows how many are done.
        n_expected: returns the estimated number of all items.
    """
    if not progress.is_shown:
        yield from items
        return
    for number, item in enumerate(items, 1):
        yield item
        progress.update(number, n_expected())


def _is_shown(setting: ProgressSetting) -> bool:
    """Return whether a bar is shown; a program without a console has no standard error."""
    if sys.stderr is None:
        return False
    return sys.stderr.isatty() if setting is None else setting is True


def _make_bar(label: str) -> tqdm[None]:
    from tqdm import tqdm

    size = shutil.get_terminal_size()  # tqdm shows nothing if the terminal does not report its size
    return tqdm(desc=label, unit=" documents", file=sys.stderr, ncols=size.columns, nrows=size.lines)
