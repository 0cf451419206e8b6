"""A Ray cluster for these tests."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a cluster for all tests of this folder; Ray's own warnings are not errors.

    Of several processes one begins with these tests, which take longest (tests/tiers.py), and no other takes them
    over, which would need a second cluster and wait until the first one has ended.
    """
    from support.ray_cluster import ray_cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ray_cluster():
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
            yield
