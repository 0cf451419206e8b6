"""Warnings about filters that compare a field that no document has, probably a misspelling."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice

__all__ = ["UnknownFieldWarning", "UnknownFields", "find_nearest_names"]

_MAX_FIELDS = 100  # that an open index warns about
_SHOWN_CHARACTERS = 60
_COMPARED_CHARACTERS = 100  # the time to compare names grows with the square of their length
_N_LIKELY = 16  # names that share most letters with the field, in any order
_N_NEAREST = 3  # fields that a warning suggests


class UnknownFieldWarning(UserWarning):
    """A filter compares a field that no document has, so that the comparison holds for no document.

    Issued once for each field while an index is open, for the first 100 fields. ``$exists`` causes no warning.
    """


class UnknownFields:
    """The fields that users of one open index were warned about; thread-safe."""

    def __init__(self) -> None:
        self._fields: set[int] = set()  # hashes, because a name may be as long as a request
        self._lock = threading.Lock()

    def warn(self, field: str, nearest: Callable[[], Sequence[str]]) -> None:
        """Warn about a field once, with the line that called into the package as its origin.

        Args:
            field: the path in a filter.
            nearest: returns the most similar names of fields that documents have, best first.

        Raises:
            UnknownFieldWarning: a warning filter of the process turns these warnings into errors; then it is
                raised each time.
        """
        with self._lock:
            if hash(field) in self._fields or len(self._fields) >= _MAX_FIELDS:
                return
            self._fields.add(hash(field))
        try:
            names = ", ".join(map(_format_name, nearest()))
            message = f"filter: no document has the field {_format_name(field)}; the nearest fields are {names}"
            warnings.warn(message, UnknownFieldWarning, stacklevel=_find_caller_level())
        except BaseException:
            with self._lock:
                self._fields.discard(hash(field))
            raise


def find_nearest_names(field: str, names: Iterable[str], is_known: Callable[[str], bool]) -> list[str]:
    """Return the up to three known names that are most similar to a field's, regardless of case, best first.

    Time is linear in the number of names: similarity is computed for a bounded number of names of bounded length.

    Args:
        field: the name in a filter.
        names: distinct names to choose from.
        is_known: whether a name may be chosen; called for few names.
    """
    matcher = SequenceMatcher(None, b=_normalize_name(field), autojunk=False)

    def sort_key(name: str, ratio: Callable[[], float]) -> tuple[float, str]:
        matcher.set_seq1(_normalize_name(name))
        return -ratio(), name

    by_letters = sorted(names, key=lambda name: sort_key(name, matcher.quick_ratio))
    likely = islice(filter(is_known, by_letters), _N_LIKELY)
    return sorted(likely, key=lambda name: sort_key(name, matcher.ratio))[:_N_NEAREST]


def _normalize_name(name: str) -> str:
    return name[:_COMPARED_CHARACTERS].casefold()


def _find_caller_level() -> int:
    """Return the `stacklevel`, in the function that calls this one, of the nearest frame outside the package."""
    package, level = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


def _format_name(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "...")
