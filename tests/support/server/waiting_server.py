"""A process that answers requests, and another one that waits for it; its encoder waits for a file.

Run as a module with an index of `ENCODER` and a folder, it serves on a port that it prints. Texts that begin with
"wait" are encoded once the folder has the file "go"; until then it has the file "begun".
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.indexes.word_encoder import WordEncoder
from support.processes import until
from support.server.running_server import WRITE_KEY

from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.server import Access, app, running
from quarry.server.http.figures import FiguresFolder
from quarry.server.http.metrics import Metrics
from quarry.server.processes import run_processes

ENCODER = WordEncoder()
GRACE_S = 1.0
END_AFTER_S = 0.2
LONGEST_S = 60.0


@dataclass(frozen=True)
class WaitingEncoder(WordEncoder):
    folder: Path = Path()

    def windows(self, text: str) -> Iterator[TokenVectors]:
        if text.startswith("wait"):
            (self.folder / "begun").touch()
            until((self.folder / "go").exists, LONGEST_S)
        return super().windows(text)


def serve(
    index: Path, folder: Path, opened: socket.socket, figures: FiguresFolder, started: Callable[[], None]
) -> None:
    running._GIVE_UP_WITHIN_S = running._END_AFTER_S = END_AFTER_S
    given = {"encoder": WaitingEncoder(folder=folder), "threads": 1, "metrics": Metrics(figures)}
    with app({"index": index}, access=Access(write_key=WRITE_KEY), **given) as served:
        running.run_server(served, opened, GRACE_S, started, is_one_of_several=True)


if __name__ == "__main__":
    with running.listen("127.0.0.1", 0) as opened:
        port = opened.getsockname()[1]
        arguments = partial(serve, *map(Path, sys.argv[1:]))
        run_processes(arguments, opened, 1, lambda: print(port, flush=True))  # noqa: T201
