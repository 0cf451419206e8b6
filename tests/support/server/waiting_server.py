"""A server whose encoder waits for a file, in this process or in one that this process waits for.

Run as a module with an index of `ENCODER`, a folder and "1" or "2" processes, it serves on a port that it prints.
Texts that begin with "wait" are encoded once the folder has the file "go"; until then it has the file "begun".
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.indexes.word_encoder import WordEncoder
from support.processes import until
from support.server.running_server import WRITE_KEY

from quarry.engine.encoding.encoder import TokenVectors
from quarry.server import Access, app, running
from quarry.server.processes import run_processes

ENCODER = WordEncoder()
GRACE_S = 0.3
END_AFTER_S = 0.1
LONGEST_S = 60.0


@dataclass(frozen=True)
class WaitingEncoder(WordEncoder):
    folder: Path = Path()

    def windows(self, text: str) -> Iterator[TokenVectors]:
        if text.startswith("wait"):
            (self.folder / "begun").touch()
            until((self.folder / "go").exists, LONGEST_S)
        return super().windows(text)


def serve(index: Path, folder: Path, opened: socket.socket, started: Callable[[], None]) -> None:
    is_child = multiprocessing.parent_process() is not None
    encoder = WaitingEncoder(folder=folder)
    with app({"index": index}, access=Access(write_key=WRITE_KEY), encoder=encoder, threads=1) as served:
        running.run_server(served, opened, GRACE_S, started, is_one_of_several=is_child, end_after_s=END_AFTER_S)


if __name__ == "__main__":
    with running.listen("127.0.0.1", 0) as opened:
        port = opened.getsockname()[1]
        here = partial(serve, Path(sys.argv[1]), Path(sys.argv[2]))
        show = partial(print, port, flush=True)
        if sys.argv[3] == "1":
            here(opened, show)
        else:
            run_processes(here, opened, 1, show)
