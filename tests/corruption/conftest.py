"""Fixtures: a small index that a test may damage."""

from __future__ import annotations

import shutil

import pytest
from support.indexes.small_index import build

from quarry.formats.container.directory import Directory


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """Build a valid index, for reading only."""
    return build(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def directory(sound, tmp_path):
    """Copy the index to a folder that a test may change."""
    folder = tmp_path / "index"
    shutil.copytree(sound.path, folder)
    return Directory(folder)
