"""Queries and the best documents of a scan, on torch's CPU device."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.engine.scoring.stored_vectors import Int8Query

torch = pytest.importorskip("torch", reason="backend gpu needs torch")


@pytest.mark.parametrize("dim", [1, 24, 384])
def test_sums_of_digits_are_the_same_query(dim):
    """Queries for int8 rows are rounded on the device as on the CPU."""
    from quarry.engine.backends.gpu.queries import ExactQueries

    generator = np.random.default_rng(dim)
    queries = generator.standard_normal((40, dim)).astype(np.float32)
    queries[3] = 0
    queries[4] *= np.float32(1e-38)
    rows = generator.integers(-127, 128, (50, dim)).astype(np.int8)
    rows_scales = generator.random(50).astype(np.float32)
    exact = ExactQueries.of(torch.from_numpy(queries), for_int8=True)
    for query, values, scale in zip(queries, exact.values.numpy(), exact.scales.numpy(), strict=True):
        found = ((rows.astype(np.float64) @ values) * (rows_scales.astype(np.float64) * scale)).astype(np.float32)
        assert found.tolist() == Int8Query(query).scores(rows, rows_scales).tolist()


@pytest.mark.parametrize("n_docs", [1, 63, 64, 1000, 6400, 6401])
def test_the_best_of_groups_are_the_best_of_all(n_docs):
    from quarry.engine.backends.gpu.scan import best_documents

    generator = np.random.default_rng(n_docs)
    scores = generator.integers(0, 300, (n_docs, 9)).astype(np.float32)  # many ties
    scores[generator.random(scores.shape) < 0.2] = -np.inf
    for n in (1, 5, 40):
        found, places = best_documents(torch.from_numpy(scores), n)
        assert found.tolist() == np.sort(scores, axis=0)[::-1][:n].T.tolist()
        assert found.tolist() == np.take_along_axis(scores.T, places.numpy(), 1).tolist()
        assert all(len(set(row)) == min(n, n_docs) for row in places.tolist())
        turned = torch.from_numpy(np.ascontiguousarray(scores.T)).T
        assert best_documents(turned, n)[0].tolist() == found.tolist()
