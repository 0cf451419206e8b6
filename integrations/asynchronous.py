"""Asynchronous methods, which frameworks have beside those that block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["on_thread"]

P = ParamSpec("P")
T = TypeVar("T")


def on_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return an asynchronous method that calls another one of its class on a thread.

    Args:
        method: what it calls, or the method of that name by which a subclass overrides it.
    """
    name = method.__name__

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await asyncio.to_thread(getattr(self, name), *args, **kwargs)
        return result

    return call
