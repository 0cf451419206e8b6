"""A small Ray cluster for the tests of one process, with a lock that limits a test run to one cluster."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LOCK = Path(tempfile.gettempdir()) / f"quarry-ray-tests-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"


@contextlib.contextmanager
def ray_cluster() -> Iterator[None]:
    """Start a cluster with two CPUs, and stop it at the end; wait while another process has one.

    Ray is given a device too, whether the machine has one or not, so that tasks can reserve it.
    """
    import fcntl

    import quarry.distributed  # noqa: F401  # must precede ray

    import ray  # isort: skip

    with LOCK.open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        ray.init(
            num_cpus=2,
            num_gpus=1,
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
        try:
            yield
        finally:
            ray.shutdown()
