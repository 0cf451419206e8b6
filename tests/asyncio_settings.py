"""Declare the settings of pytest-asyncio, which some frameworks' tests need, if it is not installed."""

from __future__ import annotations

import importlib.util

import pytest


def add_settings(parser: pytest.Parser) -> None:
    """Declare the pytest-asyncio settings of pyproject.toml, because pytest fails on unknown settings."""
    if importlib.util.find_spec("pytest_asyncio") is None:
        for name in ("asyncio_mode", "asyncio_default_fixture_loop_scope"):
            parser.addini(name, "of pytest-asyncio")
