"""Hooks for PyInstaller: a frozen program contains all that is loaded by name, the model and the backends.

PyInstaller finds this package by the entry point ``pyinstaller40`` of the distribution, without any option. What
it runs is ``hook-quarry.py`` beside this file; the name says for which package it is.
"""

from __future__ import annotations

from pathlib import Path

from quarry import engine
from quarry.engine.backends.registry import BACKENDS

__all__ = ["hidden_imports", "hook_dirs"]


def hook_dirs() -> list[str]:
    """The folders that hold hooks."""
    return [str(Path(__file__).parent)]


def hidden_imports() -> list[str]:
    """The modules that no import statement names: public names, and the backends of a plain installation."""
    backends = [str(adapter.place).partition(":")[0] for adapter in BACKENDS.values() if not adapter.extra]
    return sorted({*backends, *(getattr(engine, name).__module__ for name in engine.__all__)})
