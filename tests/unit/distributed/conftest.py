"""A Ray cluster for these tests."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start a cluster for the tests of a module; Ray's own warnings are not errors."""
    from support.ray_cluster import ray_cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ray_cluster():
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
            yield
