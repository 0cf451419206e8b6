"""Two processes that answer nothing; the first one fails at its start while a folder has the file "0 fails".

Each leaves a file with its name in the folder, named by its number, once it has started.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from quarry.server.processes import run_processes


def serve(folder: Path, opened: socket.socket, started: Callable[[], None]) -> None:
    name = multiprocessing.current_process().name
    if name.endswith("-0") and (folder / "0 fails").exists():
        os._exit(3)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    (folder / str(os.getpid())).write_text(name)
    started()
    while not ended.wait(0.05):  # a signal of another thread does not end it
        pass


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    with socket.create_server(("127.0.0.1", 0)) as opened:
        run_processes(partial(serve, Path(sys.argv[1])), opened, 2, partial(print, "ready", flush=True))
