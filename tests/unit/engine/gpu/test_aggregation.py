"""Aggregation in torch, on its CPU device, gives the scores of the aggregation in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.decoded_codes import aggregated

torch = pytest.importorskip("torch", reason="aggregation on a device needs torch")


from quarry.engine.gpu import aggregation  # noqa: E402
from quarry.engine.gpu.aggregation import aggregate_rows  # noqa: E402


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("betas", [None, [0.5, 8.0, 100.0]])
def test_scores_are_those_of_numpy(betas, share):
    generator = np.random.default_rng(0)
    offsets = np.cumsum([0, 1, 500, 2, *generator.integers(1, 9, 200)])
    scores = generator.standard_normal((offsets[-1], 3)).astype(np.float32)
    found = aggregate_rows(
        torch.from_numpy(scores),
        torch.from_numpy(offsets),
        None if betas is None else torch.tensor(betas),
        share,
    )
    assert found.dtype == torch.float32
    for column, each in enumerate(found.T.numpy()):
        expected = aggregated(scores[:, column], offsets, None if betas is None else betas[column], share)
        np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("betas", [None, [0.5, 8.0]])
def test_a_device_without_segments_has_the_same_scores(betas, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, 1, 30, 32, 100])
    scores = torch.randn((100, 2), generator=generator)
    arguments = scores, offsets, None if betas is None else torch.tensor(betas), 0.2
    expected = aggregate_rows(*arguments)

    monkeypatch.setattr(aggregation, "has_segments", lambda _: False)
    torch.testing.assert_close(aggregate_rows(*arguments), expected, rtol=1e-6, atol=1e-6)


def test_a_device_that_cannot_reduce_segments_is_found_out(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("not implemented")

    assert aggregation.has_segments(torch.device("cpu"))
    monkeypatch.setattr(torch, "segment_reduce", fail)
    assert not aggregation.has_segments(torch.device("cpu", 0))  # another one: the answer for a device is kept
