"""An empty folder for the files of an index."""

from __future__ import annotations

import pytest

from quarry.formats.container.directory import Directory


@pytest.fixture
def directory(tmp_path):
    """A folder for an index, empty, with nothing beside it."""
    folder = tmp_path / "index"
    folder.mkdir()
    return Directory(folder)
