"""Adapters of other libraries."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from support.bench.peer_index import check_entry

from bench.peers.registry import PEERS, QUARRY, Entry


def test_every_adapter_says_what_it_needs() -> None:
    for entry in PEERS:
        adapter = import_module(f"bench.peers.adapters.{entry.module}")
        assert adapter.IMPORTS
        assert entry.requirements
        assert {"build", "open", "search"} <= vars(adapter.Index).keys()
    assert len({entry.name for entry in (*PEERS, *QUARRY)}) == len(PEERS) + len(QUARRY)


LIBRARIES = [entry for entry in PEERS if "." not in entry.module and not entry.text_only]


@pytest.mark.parametrize("entry", LIBRARIES, ids=lambda entry: entry.name)
def test_an_index_of_vectors(entry: Entry, tmp_path: Path) -> None:
    check_entry(entry, tmp_path / "index")
