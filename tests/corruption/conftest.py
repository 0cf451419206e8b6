"""A small index that a test may damage as it likes."""

from __future__ import annotations

import shutil

import pytest
from support.indexes.small_index import build

from quarry.formats.container.directory import Directory


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """A valid index, which is not written to."""
    return build(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def directory(sound, tmp_path):
    """A copy of the index."""
    folder = tmp_path / "index"
    shutil.copytree(sound.path, folder)
    return Directory(folder)
