"""Index a folder of text files and print the passages that answer a question.

Usage: python examples/search_notes.py [FOLDER [QUESTION]]; without arguments, the guides of this
repository.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import quarry

GUIDES = Path(__file__).resolve().parent.parent / "docs"


def read_notes(folder: Path) -> Iterator[dict[str, object]]:
    """Yield one document for each text file: its path is the id."""
    for path in sorted([*folder.rglob("*.txt"), *folder.rglob("*.md")]):
        text = path.read_text(encoding="utf-8", errors="replace")
        if text.strip():
            yield {"id": path.relative_to(folder).as_posix(), "text": text}


def main(folder: Path, question: str) -> None:
    """Build a temporary index of a folder and print the best passage of each of the first three hits."""
    with tempfile.TemporaryDirectory() as temporary:
        report = quarry.build(read_notes(folder), Path(temporary) / "index", progress=False)
        print(f"{report.n_documents} files, {report.n_centroids} passages")
        with quarry.Engine.open(Path(temporary) / "index") as index:
            for hit in index.search(question, k=3, explain=True):
                passage = " ".join(hit.matches[0].text.split())
                print(f"{hit.id} ({hit.score:.2f}): {passage}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0]) if arguments else GUIDES,
        arguments[1] if len(arguments) > 1 else "how do I keep a backup of an index?",
    )
