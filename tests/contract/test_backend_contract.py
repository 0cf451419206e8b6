"""Backends pass the tests that those of other packages have to pass."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from quarry.testing import BackendContract


@pytest.mark.parametrize("backend", ["exact", "scan", "cpu_faiss", "hnsw"])
class TestContract(BackendContract):
    pass


@pytest.mark.skipif(find_spec("torch") is None, reason="backend gpu needs torch")
@pytest.mark.parametrize("backend", ["gpu"])
class TestContractOnDevice(BackendContract):
    device = os.environ.get("QUARRY_TEST_DEVICE", "cpu")
