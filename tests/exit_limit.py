"""Ends an interpreter that does not end by itself after the tests, and shows what its threads are waiting for."""

from __future__ import annotations

import faulthandler
import sys

import pytest


def pytest_unconfigure(config: pytest.Config) -> None:
    """Allow what is left of the process as long as a test."""
    seconds = float(config.getini("faulthandler_timeout") or 0)
    if seconds > 0 and sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(seconds, file=sys.__stderr__, exit=True)
