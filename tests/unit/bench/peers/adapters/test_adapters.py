"""Adapters of other libraries."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from support.bench.peer_index import check_entry

from bench.data.token_vectors import TokenRepresentation
from bench.peers.adapters.fast_plaid_index import principal_components
from bench.peers.registry import PEERS, QUARRY, Entry
from quarry.engine.encoding.opening import open_encoder


def test_tokens_of_late_interaction_are_all_of_them() -> None:
    encoder = open_encoder()
    found = TokenRepresentation().represent("bread and butter", encoder.windows("bread and butter"), True)
    assert found.values.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(found.values, axis=1), 1, rtol=1e-5)


def test_components_keep_products() -> None:
    generator = np.random.default_rng(0)
    flat = (generator.standard_normal((50, 3)) @ generator.standard_normal((3, 8))).astype(np.float32)
    projected = flat @ principal_components(flat, 3)
    np.testing.assert_allclose(projected @ projected.T, flat @ flat.T, atol=1e-3)
    assert principal_components(flat, 8).tolist() == np.eye(8).tolist()


def test_every_adapter_says_what_it_needs() -> None:
    for entry in PEERS:
        adapter = import_module(f"bench.peers.adapters.{entry.module}")
        assert adapter.IMPORTS
        assert entry.requirements
        assert {"build", "open", "search"} <= vars(adapter.Index).keys()
    assert len({entry.name for entry in (*PEERS, *QUARRY)}) == len(PEERS) + len(QUARRY)


LIBRARIES = [
    entry for entry in PEERS if "." not in entry.module and entry.vectors == "mean" and not entry.text_only
]


@pytest.mark.parametrize("entry", LIBRARIES, ids=lambda entry: entry.name)
def test_an_index_of_vectors(entry: Entry, tmp_path: Path) -> None:
    check_entry(entry, tmp_path / "index")
