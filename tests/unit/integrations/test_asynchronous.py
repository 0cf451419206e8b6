"""Methods that call others on a thread."""

from __future__ import annotations

import asyncio
import inspect
import threading

from quarry.integrations.asynchronous import on_thread


class Store:
    def find(self, k: int, *, factor: int = 1) -> tuple[str, int, threading.Thread]:
        """Find something."""
        return "store", k * factor, threading.current_thread()

    find_async = on_thread(find)


class OtherStore(Store):
    def find(self, k: int, *, factor: int = 1) -> tuple[str, int, threading.Thread]:
        return "other", k * factor, threading.current_thread()


def test_the_method_of_the_object_runs_on_another_thread() -> None:
    for store, name in ((Store(), "store"), (OtherStore(), "other")):
        *found, thread = asyncio.run(store.find_async(3, factor=2))
        assert found == [name, 6]
        assert thread is not threading.current_thread()


def test_it_looks_as_the_method_does() -> None:
    assert inspect.iscoroutinefunction(Store.find_async)
    assert inspect.signature(Store.find_async) == inspect.signature(Store.find)
    assert Store.find_async.__doc__ == "Find something."
