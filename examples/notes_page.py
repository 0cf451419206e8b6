"""Search one's own notes in a browser: an index that follows a folder, and the page of `quarry serve`.

Usage: python examples/notes_page.py [FOLDER]; without arguments, the guides of this repository, and only until the
first question is answered. Needs the extra server: pip install 'quarry-search[server]'.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import uvicorn

import quarry
import quarry.server

GUIDES = Path(__file__).resolve().parent.parent / "docs"


def sync(folder: Path, index: Path) -> None:
    """Bring the index up to date: files that are new or have changed are added, and others removed."""
    with quarry.Engine.open(index, writable=True, wait=10, create=True) as engine:
        report = engine.sync(folder)
        print(f"{len(report.added)} added, {len(report.changed)} changed, {len(report.removed)} removed")


def main(folder: Path, index: Path, port: int, *, is_asking: bool) -> None:
    """Serve the notes of a folder, and synchronize them every minute; the page follows by itself."""
    sync(folder, index)
    with quarry.server.app({"notes": index}) as application:
        server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="warning"))
        stopped = threading.Event()

        def follow() -> None:
            while not stopped.wait(60):
                sync(folder, index)

        threading.Thread(target=follow, daemon=True).start()
        if is_asking:
            threading.Thread(target=ask, args=(server,), daemon=True).start()
        else:
            print(f"http://127.0.0.1:{port}/ (Ctrl+C stops)")
        server.run()
        stopped.set()


def ask(server: uvicorn.Server) -> None:
    """Ask the server one question, as the page does, and stop it."""
    while not (server.started and server.servers):
        threading.Event().wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    question = json.dumps({"query": "how do I keep a backup of an index?", "k": 1}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/indexes/notes/search", question, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        hit = json.load(answer)["hits"][0]
    print(f"{hit['place']}: {' '.join(hit['passages'][0]['text'].split())}")
    server.should_exit = True


if __name__ == "__main__":
    if len(sys.argv) > 1:
        notes = Path(sys.argv[1])
        main(notes, notes.with_name(f"{notes.name}.index"), 8000, is_asking=False)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(GUIDES, Path(temporary) / "index", 0, is_asking=True)
