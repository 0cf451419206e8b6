"""The programs in examples/ print what their page shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NEEDS = {
    "answer_with_langchain.py": ("langchain_core",),
    "fastapi_application.py": ("starlette", "fastapi"),
    "notes_page.py": ("starlette", "uvicorn"),
    "shop.py": ("starlette", "uvicorn"),
}
GUIDES = ("durability.md", "server.md", "settings.md")
CHAPTERS = ("assert", "power", "integers", "truth", "await")  # a book that is indexed in a second
PRINTED = {
    "answer_from_a_book.py": "5 of 5 questions find such a passage first, 5 among the first three",
    "fastapi_application.py": '[{"id":"soup"',
    "notes.py": "election? No note answers that.",
    "notes_page.py": "durability.md, line",
    "search_notes.py": "durability.md",
    "desktop_search.py": "durability.md, line",
    "catalog.py": "after the sale: ['teapot'",
    "shop.py": "after the sale: [('Steel Backpack E51', 1)",
    "follow_changes.py": "after: Lunch is at noon",
    "answer_with_langchain.py": "the chain oiled? The chain is oiled every 300 kilometers.",
}


def test_every_example_is_known_and_on_its_page() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == PRINTED.keys()
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    others = {path.name for path in FOLDER.glob("*.json")}  # these are run by the tests of their readers
    assert all(f"[{name}]({name})" in page for name in PRINTED.keys() | others)


def write_short_book(folder: Path) -> None:
    """Write some chapters where the program finds them instead of the book, and the questions that they answer."""
    book = {name: topics[name] for name in CHAPTERS}
    (folder / "pydoc_data").mkdir()
    (folder / "pydoc_data" / "__init__.py").touch()
    (folder / "pydoc_data" / "topics.py").write_text(f"topics = {json.dumps(book)}", "utf-8")
    text = " ".join(" ".join(book.values()).split())
    lines = (FOLDER / "book_questions.tsv").read_text("utf-8").splitlines()
    assert len(lines) == 50
    answered = [line for line in lines if any(words in text for words in line.split("\t")[1:])]
    (folder / "book_questions.tsv").write_text("\n".join(answered), "utf-8")


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example(name: str, tmp_path: Path) -> None:
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module, reason="the example needs this library")
    for folder in ("docs", "examples"):  # an example indexes the guides beside its own folder
        (tmp_path / folder).mkdir()
    for guide in GUIDES:
        shutil.copy(FOLDER.parent / "docs" / guide, tmp_path / "docs")
    if name == "answer_from_a_book.py":
        write_short_book(tmp_path / "examples")
    command = [sys.executable, "-W", "error", shutil.copy(FOLDER / name, tmp_path / "examples")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout
