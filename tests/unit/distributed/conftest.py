"""A Ray cluster for these tests, which run first."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a cluster for all tests of this folder; Ray's own warnings are not errors."""
    from support.ray_cluster import ray_cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ray_cluster():
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
            yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of this folder to the front: what one worker begins with is not taken over by another.

    Two workers that divide these tests need two clusters, and the second waits until the first one has ended.
    """
    items.sort(key=lambda item: FOLDER not in item.path.parents)
