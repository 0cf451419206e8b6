"""An index that follows a folder of Markdown notes, searched by what they say, their names, tags and dates.

Usage: python examples/notes.py [FOLDER [QUESTION]]; without arguments, a few notes that the program writes. The
index is FOLDER.index, and is brought up to date each time. `quarry sync FOLDER FOLDER.index --watch` does so with
each change, and `quarry serve FOLDER.index` is a page for searching it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import quarry

NOTES = {
    "garden/tomatoes.md": """---
title: Growing tomatoes
tags: [garden, food]
date: 2026-03-14
---
# Sowing
Sow indoors in March, two seeds to a pot, and keep them warm.

# Watering
Water the roots in the morning. Wet leaves bring blight.
""",
    "kitchen/sauce.md": """---
title: Tomato sauce
tags: [food, recipe]
date: 2026-08-20
---
Simmer ripe tomatoes with garlic and basil for an hour.
""",
    "bicycle.md": "# Chain\nOil it every 300 kilometers, and wipe off what drips.\n",
    "2026-08-meeting.md": """---
tags: work
date: 2026-08-31
---
The launch moves to October. Ann writes to the printers.
""",
}


def write_notes(folder: Path) -> None:
    """Write notes with front matter."""
    for name, text in NOTES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def sync(index: quarry.Engine, folder: Path) -> None:
    """Bring the index up to date and print what has changed."""
    report = index.sync(folder, include="*.md")
    print(f"{len(report.added)} added, {len(report.changed)} changed, {len(report.removed)} removed", end="; ")
    print("moved:", dict(report.moved))


def ask(index: quarry.Engine, question: str) -> None:
    """Print the passages that answer a question, each with its place: the file, lines and heading."""
    hits = index.search(question, k=3, unit="passage", min_relevance=0.3)
    for hit in hits:
        print(f"{question} {hit.place}: {' '.join(hit.text.split())}")
    if not hits:
        print(f"{question} No note answers that.")


def show(index: quarry.Engine, folder: Path) -> None:
    """Search by name, tag and date, and follow a renamed and a changed note."""
    print("by the name of the file:", [hit.id for hit in index.search("meeting", mode="lexical")])
    print("by tag:", [hit.title for hit in index.search(filter={"tags": "food"}, sort="-date")])
    august = {"date": {"$between": ["2026-08-01", "2026-08-31"]}}
    print("by date:", [hit.id for hit in index.search("what was decided?", filter=august)])
    (folder / "bicycle.md").rename(folder / "bike.md")
    (folder / "2026-08-meeting.md").write_text("The launch moves to November.\n", encoding="utf-8")
    sync(index, folder)
    ask(index, "When is the launch?")


def main(folder: Path, question: str) -> None:
    """Follow a folder and answer a question."""
    path, fields = (
        folder.with_name(f"{folder.name}.index"),
        ["file.path", "tags"],
    )  # words of these are searched, too
    with quarry.Engine.open(path, writable=True, create=True, searchable=fields) as index:
        sync(index, folder)
        ask(index, question)
        if len(sys.argv) == 1:
            show(index, folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "What did I write?")
    else:
        with tempfile.TemporaryDirectory() as temporary:
            notes = Path(temporary) / "notes"
            write_notes(notes)
            main(notes, "How do I keep my tomatoes from getting ill?")
            with quarry.Engine.open(notes.with_name("notes.index")) as reader:
                ask(reader, "Who won the election?")
