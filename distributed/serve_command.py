"""Serve indexes over HTTP, with a page for searching."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarry.distributed import importing_ray
from quarry.engine.cli.words import name_indexes
from quarry.formats.container.directory import Directory
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.server import command

if TYPE_CHECKING:  # needs Ray
    from quarry.distributed.served_shards import ServedShards

__all__ = ["add_arguments", "open_served", "run"]

_LOCAL = "local"
_CONNECT_S = 10.0  # to reach a cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry serve``, with or without Ray."""
    command.add_arguments(parser)
    ray = parser.add_argument_group("sharded indexes whose shards are processes of Ray Serve")
    ray.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="address of a Ray cluster; auto: the one of this machine, local: a new one. The application"
        " quarry-NAME serves an index; if it is not running, it is started and ends with this command",
    )
    ray.add_argument("--replicas", type=int, metavar="N", help="copies of each shard (default: 1)")
    ray.add_argument(
        "--replica-cpus",
        type=float,
        metavar="N",
        help="processors that Ray reserves for each copy, and for each index (default: 1)",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``quarry serve``; return the exit status.

    Raises:
        QuarryError: see `quarry.server.command.run` and `quarry.distributed.deployments.serve_index`.
    """
    if args.ray is None:
        if args.replicas is not None or args.replica_cpus is not None:
            raise InvalidSetting("--replicas and --replica-cpus are settings of Ray", expected="--ray ADDRESS too")
        return command.run(args)
    args.replicas = 1 if args.replicas is None else args.replicas
    args.replica_cpus = 1.0 if args.replica_cpus is None else args.replica_cpus
    from quarry.formats.shard_set import load_newest_shard_set  # needs NumPy, without which `--help` is quicker

    names = {path.absolute(): f"quarry-{name}" for name, path in name_indexes(args.index).items()}
    n_shards = [len(load_newest_shard_set(Directory(path)).folders) for path in names]
    n_cpus = sum(number * args.replicas + 1 for number in n_shards) * args.replica_cpus
    with contextlib.ExitStack() as stack:
        stack.enter_context(_connected(args.ray, n_cpus))

        def open_reader(path: Path) -> ServedShards:
            folder = path.absolute()
            return open_served(args, names[folder], folder, stack)

        return command.run(args, open_reader)


@contextlib.contextmanager
def _connected(address: str, n_cpus: float) -> Iterator[None]:
    """Connect to a cluster until the block ends.

    Args:
        address: the address of the cluster; "local": a new one on this machine.
        n_cpus: processors that a new cluster has at least, whether the machine has them or not.

    Raises:
        BackendUnavailable: Ray is not installed, or there is no such cluster.
    """
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    with importing_ray():
        import ray
    logging.getLogger("ray").setLevel(logging.ERROR)
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if address == _LOCAL:
        n_processors = max(os.cpu_count() or 1, math.ceil(n_cpus))
        options |= {"num_cpus": n_processors, "include_dashboard": False}
    try:
        _check_reachable(address)
        ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendUnavailable(
            "there is no Ray cluster", expected=f"{_LOCAL}, or the address of one", actual=f"{address}: {error}"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at an address HOST:PORT, for which Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()


def open_served(args: argparse.Namespace, name: str, folder: Path, stack: contextlib.ExitStack) -> ServedShards:
    """Connect to the application of an index; if there is none, start one, which the stack deletes at the end.

    Args:
        args: the arguments of the command.
        name: the name of the application.
        folder: the folder of the index, absolute.
        stack: ends with the command.

    Raises:
        InvalidSetting: the application serves another index.
        QuarryError: see `quarry.distributed.deployments.serve_index`.
    """
    from quarry.distributed.deployments import connect_index, is_serving, serve_index

    from ray import serve  # isort: skip

    if is_serving(name):
        served = connect_index(name)
        if served.folder() != folder:
            raise InvalidSetting(
                f"the application {name} of Ray Serve serves another index, so give this one another name",
                path=folder,
                expected="NAME=FOLDER",
                actual=served.folder(),
            )
        return served
    served = serve_index(
        folder,
        name=name,
        encoder=args.encoder,
        reranker=args.reranker,
        replicas=args.replicas,
        num_cpus=args.replica_cpus,
    )
    stack.callback(serve.delete, name)
    return served
