"""Adapters of databases that store texts beside vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bench.peer_index import check_entry

from bench.peers.registry import PEERS, Entry, environment_python

DATABASES = [entry for entry in PEERS if entry.module.startswith("databases.")]


def test_every_database_has_an_environment_of_its_own() -> None:
    """Databases have contradictory requirements, so each has an environment, shared by all entries of that
    database.
    """
    pythons = {(entry.module, environment_python(entry)) for entry in DATABASES}
    assert len(pythons) == len({module for module, _ in pythons}) == len({python for _, python in pythons}) >= 6
    assert None not in {python for _, python in pythons}


@pytest.mark.parametrize("entry", DATABASES, ids=lambda entry: entry.name)
def test_an_index_of_vectors_and_texts(entry: Entry, tmp_path: Path) -> None:
    check_entry(entry, tmp_path / "index")
