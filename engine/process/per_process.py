"""Objects that a process has for itself, not shared with its children, and models that it has open once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, cast
from weakref import WeakValueDictionary

from quarry.engine.process.exit_gate import in_progress
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.reranker import RerankerBundle

__all__ = ["PerProcess", "SharedModels", "bundle_key", "shared_models"]

T = TypeVar("T")


class PerProcess(Generic[T]):
    """An object that is created at first use, once per process: after a fork the child creates its own.

    Args:
        make: creates it; called by one thread at a time.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # By process id. A session inherited by a fork is kept and not used, because destroying it is not safe when
        # it has threads. An inherited lock is not safe either: another thread of the parent may hold it.
        self._made: dict[int, T] = {}
        self._locks: dict[int, threading.Lock] = {}

    def get(self) -> T:
        """Return the object of this process; an error of ``make`` is raised, and the next call tries again."""
        process = os.getpid()  # asked each time, since a fork may come between any two calls
        made = self._made.get(process)
        if made is None:
            # Only who finds nothing takes the lock. `setdefault` is one step, so all threads get the same lock.
            with in_progress, self._locks.setdefault(process, threading.Lock()):
                made = self._made.get(process)
                if made is None:
                    made = self._made[process] = self._make()
        return made


class SharedModels:
    """Returns one model for each key as long as there are references to it; safe to use from several threads.

    A model is closed, and its memory freed, with the last reference: an index drops its own when it is closed or
    garbage-collected.
    """

    def __init__(self) -> None:
        self._models: WeakValueDictionary[Hashable, object] = WeakValueDictionary()
        self._lock = threading.RLock()  # reentrant, because finalizers may take it in a thread that has it

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the model of a key; it is made if there is none.

        Args:
            key: determines the model among those of its type.
            make: makes it; called by one thread at a time.
        """
        with self._lock:
            model = self._models.get(key)
            if model is None:
                model = self._models[key] = make()
            return cast(T, model)

    def after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._lock = threading.RLock()


def bundle_key(bundle: EncoderBundle | RerankerBundle) -> Hashable:
    """Return a key of a bundle's manifest, and of its folder, whose files are read at first use."""
    return bundle.path.resolve(), bundle.settings, frozenset(bundle.files.items())


shared_models = SharedModels()
"""The models of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared_models.after_fork)
