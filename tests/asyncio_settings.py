"""Settings of pytest-asyncio, which suites of frameworks need: declared if it is not installed."""

from __future__ import annotations

import importlib.util

import pytest

__all__ = ["pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings in pyproject.toml that pytest does not know otherwise: an unknown one is an error."""
    if importlib.util.find_spec("pytest_asyncio") is None:
        for name in ("asyncio_mode", "asyncio_default_fixture_loop_scope"):
            parser.addini(name, "of pytest-asyncio")
