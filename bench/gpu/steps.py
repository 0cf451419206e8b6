"""Measurements that do not stop those after them: what one raises, or lacks, is a record like its results."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator

from bench.harness.records import Record

__all__ = ["guarded"]

_MOST_WORDS = 300


def guarded(
    about: Record,
    measure: Callable[[], Iterable[Record]],
    absent: tuple[type[Exception], ...] = (ImportError,),
) -> Iterator[Record]:
    """Yield what a measurement gives, and at its end what it raised.

    Args:
        about: is put before each of its records.
        measure: makes them.
        absent: errors that say that something is not here: "missing" says what; others are "failed", with their
            "traceback".
    """
    try:
        for record in measure():
            yield {**about, **record}
    except absent as error:
        yield {**about, "missing": repr(error)[:_MOST_WORDS]}
    except Exception as error:  # whatever a library or a driver raises
        yield {**about, "failed": repr(error)[:_MOST_WORDS], "traceback": traceback.format_exc()}
