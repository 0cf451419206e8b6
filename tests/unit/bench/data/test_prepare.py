"""Collections with the vectors and exact results that several measurements use."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.data.collections import read_collection
from bench.data.prepare import REPRESENTATIONS, find_exact, representation_key
from bench.data.prepared import Prepared
from quarry.engine import KMeans, Mean, Pieces


def test_the_oracle_is_that_of_brute_force() -> None:
    generator = np.random.default_rng(0)
    values, queries = (generator.standard_normal((n, 16)).astype(np.float32) for n in (800, 5))
    offsets = np.arange(0, 801, 4)
    for query, best in zip(queries, find_exact(queries, values, offsets), strict=True):
        scores = [max(values[low:high] @ query) for low, high in pairwise(offsets.tolist())]
        assert best.tolist() == np.argsort(scores)[::-1][:100].tolist()


def test_the_oracle_of_few_documents_has_them_all() -> None:
    values = np.eye(3, dtype=np.float32)
    assert find_exact(values[1:2] + 0.1 * values[2:], values, np.array([0, 1, 2, 3])).tolist() == [[1, 2, 0]]


def test_a_subset_and_the_split_are_the_folders(beir_folder: Path) -> None:
    collection = read_collection(beir_folder, "test")
    assert len(collection.subset(None, 3).queries) == 3


def test_prepared_data_is_shared_by_sweep_peers_and_table(
    beir_folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", str(beir_folder)]) == 0
    prepared = Prepared(Path(capsys.readouterr().out.strip()))
    assert prepared.folder.parent == cache
    needed = [*REPRESENTATIONS, Mean(), Pieces(24), Pieces(64), KMeans(8)]
    assert all(prepared.has(representation_key(each)) for each in needed)
