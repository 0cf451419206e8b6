"""Terminate an interpreter that hangs at exit after the tests, and show the stacks of its threads."""

from __future__ import annotations

import faulthandler
import sys

import pytest


def pytest_unconfigure(config: pytest.Config) -> None:
    """Limit the time between the end of the tests and the exit of the process to that of one test."""
    seconds = float(config.getini("faulthandler_timeout") or 0)
    if seconds > 0 and sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(seconds, file=sys.__stderr__, exit=True)
