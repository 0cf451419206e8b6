"""Warnings about filters that name a field which no document has: most often a misspelling."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice

__all__ = ["UnknownFieldWarning", "UnknownFields", "nearest_names"]

_MAX_FIELDS = 100
_SHOWN_CHARACTERS = 60
_COMPARED_CHARACTERS = 100
_N_LIKELY = 16  # names that share the most letters with a field's, whatever their order
_N_NEAREST = 3


class UnknownFieldWarning(UserWarning):
    """A filter compares a field that no document has, so that the comparison holds for no document.

    Issued once for each field while an index is open, for the first 100 of them. ``$exists`` asks whether a field
    is there, and issues none.
    """


class UnknownFields:
    """The fields that callers of one open index were warned about; safe to use from several threads."""

    def __init__(self) -> None:
        self._fields: set[str] = set()
        self._lock = threading.Lock()

    def warn(self, field: str, nearest: Callable[[], Sequence[str]]) -> None:
        """Warn about a field, unless that was done; attributed to the line that called into the package.

        Args:
            field: the path that a filter names.
            nearest: gives the names of fields that documents have, the likeliest first.

        Raises:
            UnknownFieldWarning: the process turns these warnings into errors; then it is raised each time.
        """
        with self._lock:
            if field in self._fields or len(self._fields) >= _MAX_FIELDS:
                return
            self._fields.add(field)
        try:
            names = ", ".join(map(_shown, nearest()))
            message = f"filter: no document has the field {_shown(field)}; the nearest fields are {names}"
            warnings.warn(message, UnknownFieldWarning, stacklevel=_caller_level())
        except BaseException:
            with self._lock:
                self._fields.discard(field)
            raise


def nearest_names(field: str, names: Iterable[str], is_known: Callable[[str], bool]) -> list[str]:
    """The three names most like a field's, regardless of case, the likeliest first; fewer if fewer are known.

    Time grows with the number of names only: what is compared letter by letter is bounded in number and length.

    Args:
        field: what a filter names.
        names: to choose from, distinct.
        is_known: whether a name may be chosen; asked of few.
    """
    matcher = SequenceMatcher(None, b=_compared(field), autojunk=False)

    def unlikeness(name: str, ratio: Callable[[], float]) -> tuple[float, str]:
        matcher.set_seq1(_compared(name))
        return -ratio(), name

    by_letters = sorted(names, key=lambda name: unlikeness(name, matcher.quick_ratio))
    likely = islice(filter(is_known, by_letters), _N_LIKELY)
    return sorted(likely, key=lambda name: unlikeness(name, matcher.ratio))[:_N_NEAREST]


def _compared(name: str) -> str:
    return name[:_COMPARED_CHARACTERS].casefold()


def _caller_level() -> int:
    """The `stacklevel`, for the function that calls this one, of the nearest frame outside the package."""
    package, level = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "...")
