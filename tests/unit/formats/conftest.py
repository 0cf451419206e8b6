"""Fixtures: an empty folder for the files of an index."""

from __future__ import annotations

import pytest

from quarry.formats.container.directory import Directory


@pytest.fixture
def directory(tmp_path):
    """Create an empty folder for an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    return Directory(folder)
