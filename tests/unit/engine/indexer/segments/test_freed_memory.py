"""Returning freed memory: harmless with and without a C library that can do it."""

from __future__ import annotations

import ctypes

import pytest

from quarry.engine.indexer.segments.new_quantizer import return_freed_memory


def test_it_can_be_called_at_any_time():
    for _ in range(2):
        return_freed_memory()


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_without_the_function_nothing_is_done(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    return_freed_memory()
