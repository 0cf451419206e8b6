"""Errors that are kept, or handed on while work goes on."""

from __future__ import annotations

import traceback

__all__ = ["let_go"]


def let_go(error: BaseException) -> None:
    """Empty the frames behind an error, of functions that have ended: they hold on to files, space and arrays."""
    each: BaseException | None = error
    seen: set[int] = set()  # `raise error from error` is its own cause
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__ or each.__context__
