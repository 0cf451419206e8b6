"""Serve indexes over HTTP, with a page for searching."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from quarry.engine.cli.output import PrintableFormatter, print_lines
from quarry.engine.cli.words import name_indexes, parse_path
from quarry.engine.process.libraries import requiring
from quarry.formats.errors import InvalidSetting

if TYPE_CHECKING:  # needs a library that may be missing
    from quarry.server.application import SearchApp

__all__ = ["add_arguments", "run"]

READ_KEY, WRITE_KEY = "QUARRY_READ_KEY", "QUARRY_WRITE_KEY"
"""Variables of the environment that have the keys."""

_MAX_PROCESSES = 256
_LIMITS = (
    ("max_k", int, "hits of a search"),
    ("max_body_bytes", int, "bytes of a request, except for documents that are added"),
    ("max_upload_bytes", int, "bytes of documents that are added at once"),
    ("timeout_s", float, "seconds until a request must be answered"),
    ("max_waiting", int, "requests that wait for a thread"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry serve``."""
    parser.add_argument(
        "index", metavar="INDEX", nargs="+", help="the folder of an index, or NAME=FOLDER to name it for clients"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0: any (default: 8000)")
    parser.add_argument(
        "--read-key-file", type=parse_path, metavar="FILE", help=f"file with the key for reading (or ${READ_KEY})"
    )
    parser.add_argument(
        "--write-key-file",
        type=parse_path,
        metavar="FILE",
        help=f"file with the key for writing (or ${WRITE_KEY})",
    )
    parser.add_argument(
        "--allow-host", action="append", metavar="NAME", help="answer for this name in the header Host; *: for any"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="let pages of this origin use the server",
    )
    parser.add_argument(
        "--encoder",
        type=parse_path,
        metavar="FOLDER",
        help="encoder bundle of all indexes (default: the bundled encoder that each has)",
    )
    parser.add_argument("--reranker", type=parse_path, metavar="FOLDER", help="bundle of a reranker")
    parser.add_argument("--threads", type=int, metavar="N", help="number of searches at once, in each process")
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="processes that answer requests, each with indexes and models of its own (default: 1)",
    )
    for name, kind, what in _LIMITS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=f"limit: {what}")


def run(args: argparse.Namespace, open_reader: Callable[[Path], Any] | None = None) -> int:
    """Run ``quarry serve``; return the exit status.

    Args:
        args: the parsed arguments.
        open_reader: as for `quarry.server.application.app`.

    Raises:
        QuarryError: an index cannot be opened, a setting is not valid, or the port is in use; BackendUnavailable
            when Starlette or uvicorn is not installed.
    """
    with requiring("serving needs libraries that are not installed", "'quarry-search[server]'"):
        from quarry.server.application import app
        from quarry.server.http.access import LOOPBACK_HOSTS, Access, find_key
        from quarry.server.limits import Limits
        from quarry.server.processes import run_processes
        from quarry.server.running import is_loopback, listen, run_server, url_of
    most = _MAX_PROCESSES if open_reader is None else 1  # a connection to Ray belongs to one process
    if not 1 <= args.processes <= most:
        raise InvalidSetting("not a number of processes", expected=f"1 to {most}", actual=args.processes)
    given = {name: getattr(args, name) for name, *_ in _LIMITS if getattr(args, name) is not None}
    limits = Limits(threads=args.threads, **given)
    own = [] if args.host in ("0.0.0.0", "::") else [f"[{args.host}]" if ":" in args.host else args.host]
    access = Access(
        read_key=find_key(args.read_key_file, os.environ, READ_KEY),
        write_key=find_key(args.write_key_file, os.environ, WRITE_KEY),
        needs_key=not is_loopback(args.host),
        hosts=(*LOOPBACK_HOSTS, *own, *(args.allow_host or ())),
        origins=tuple(args.allow_origin),
    )
    make_app = partial(
        app,
        name_indexes(args.index),
        encoder=args.encoder,
        reranker=args.reranker,
        access=access,
        limits=limits,
        open_reader=open_reader,
    )
    _log_warnings()
    with listen(args.host, args.port) as opened:
        url = url_of(opened)
        with make_app() as served:
            line = f"serving {', '.join(served.indexes)} at {url} (Ctrl+C stops)"
            if args.processes == 1:
                run_server(served, opened, limits.timeout_s, lambda: print_lines(line))
                return 0
        serve = partial(_serve, make_app, limits.timeout_s)
        have_ended = run_processes(serve, opened, args.processes, lambda: print_lines(line))
    return 0 if have_ended else 1


def _serve(make_app: Callable[[], SearchApp], grace_s: float, opened: socket, started: Callable[[], None]) -> None:
    """Serve in one of several processes, see `quarry.server.processes`."""
    from quarry.server.running import run_server

    _log_warnings()
    with make_app() as served:
        run_server(served, opened, grace_s, started, is_one_of_several=True)


def _log_warnings() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("quarry: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
