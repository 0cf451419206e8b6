"""Copies between host and device; the device is torch's CPU device."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="devices need torch")

from quarry.engine.gpu import transfer  # noqa: E402
from quarry.engine.gpu.device_vectors import DeviceVectors  # noqa: E402

PLACE = torch.device("cpu")


@pytest.mark.parametrize("kind", [np.int8, np.float16, np.float32])
@pytest.mark.parametrize("stage_bytes", [1, 700, 1 << 25], ids=["one row", "some rows", "all rows"])
def test_rows_are_uploaded_in_steps(kind: type, stage_bytes: int) -> None:
    rows = np.random.default_rng(0).integers(-100, 100, (37, 24)).astype(kind)
    steps: list[tuple[int, int]] = []

    def read(low: int, high: int) -> np.ndarray:
        steps.append((low, high))
        return rows[low:high]

    found = transfer.upload(read, len(rows), PLACE, stage_bytes)
    assert found.numpy().dtype == kind
    np.testing.assert_array_equal(found.numpy(), rows)
    assert max(high - low for low, high in steps) <= max(1, stage_bytes // rows[0].nbytes)


def test_arrays_are_sent_and_downloaded() -> None:
    values = np.arange(12, dtype=np.int64).reshape(3, 4)
    sent = transfer.send(values, PLACE)
    values[:] = 0  # the device has a copy
    first, second = transfer.download(sent, sent * 2)
    assert first.tolist() == np.arange(12).reshape(3, 4).tolist()
    assert second.tolist() == (2 * np.arange(12)).reshape(3, 4).tolist()


def test_vectors_on_a_device_are_cut_and_brought_back() -> None:
    values = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    vectors = DeviceVectors(torch.from_numpy(values))
    assert (len(vectors), vectors.shape) == (5, (5, 3))
    np.testing.assert_array_equal(vectors.host, values)
    part = vectors[1:3]
    assert part.shape == (2, 3)
    np.testing.assert_array_equal(part.host, values[1:3])
