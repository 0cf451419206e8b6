"""One process writes, another one searches what was committed, without a server between them."""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import quarry

MESSAGES = [
    "The build is green again.",
    "Lunch is at noon in the garden.",
    "The database moves to a new host tonight.",
]


def write(path: Path) -> None:
    """Add each message in a commit of its own."""
    with quarry.Engine.open(path, writable=True) as index:
        for message in MESSAGES:
            index.add([message])
            index.commit()


def main() -> None:
    """Open a reader, let another process write, and search with the same reader."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "messages"
        quarry.build(["Welcome to the channel."], path, progress=False)
        with quarry.Engine.open(path, refresh=True) as reader:
            print("before:", reader.search("when do we eat?", k=1)[0].text)
            writer = multiprocessing.get_context("spawn").Process(target=write, args=(path,))
            writer.start()
            writer.join()
            print("after:", reader.search("when do we eat?", k=1)[0].text)


if __name__ == "__main__":
    main()
