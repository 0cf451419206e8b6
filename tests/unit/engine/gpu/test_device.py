"""The memory budget of a device."""

from __future__ import annotations

import pytest

from quarry.engine.gpu.device import Device

torch = pytest.importorskip("torch", reason="backend gpu needs torch")


@pytest.mark.parametrize(("limit_gib", "work_mib"), [(1, 128), (8, 512), (24, 768), (128, 4096), (1024, 4096)])
def test_larger_devices_have_more_room_to_work_in(limit_gib, work_mib):
    device = Device(limit_bytes=limit_gib << 30)
    device.__dict__["place"] = torch.device("cuda")
    assert device.work_bytes == work_mib << 20
    assert device.left_bytes == device.limit_bytes - device.work_bytes


def test_memory_is_reserved_and_released():
    device = Device("cpu", limit_bytes=1 << 30)
    left = device.left_bytes
    assert device.reserve(left - 10)
    assert device.left_bytes == 10
    assert not device.reserve(11)
    assert device.left_bytes == 10
    device.release(left - 10)
    assert device.left_bytes == left


def test_a_device_without_kernels_computes_in_torch():
    device = Device("cpu")
    assert device.kernel("document_scores") is None
    device.disable_kernels()
    assert device.kernels is None
