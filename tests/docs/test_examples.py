"""The programs in examples/ print what their page shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
NEEDS = {
    "answer_with_langchain.py": ("langchain_core",),
    "fastapi_application.py": ("starlette", "fastapi"),
    "notes_page.py": ("starlette", "uvicorn"),
}
GUIDES = ("durability.md", "server.md", "settings.md")
PRINTED = {
    "fastapi_application.py": '[{"id":"soup"',
    "notes_page.py": "durability.md, line",
    "search_notes.py": "durability.md",
    "desktop_search.py": "durability.md, line",
    "catalog.py": "after the sale: ['teapot'",
    "follow_changes.py": "after: Lunch is at noon",
    "answer_with_langchain.py": "the chain oiled? The chain is oiled every 300 kilometers.",
}


def test_every_example_is_known_and_on_its_page() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == PRINTED.keys()
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    others = {path.name for path in FOLDER.glob("*.json")}  # these are run by the tests of their readers
    assert all(f"[{name}]({name})" in page for name in PRINTED.keys() | others)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example(name: str, tmp_path: Path) -> None:
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module, reason="the example needs this library")
    for folder in ("docs", "examples"):  # an example indexes the guides beside its own folder
        (tmp_path / folder).mkdir()
    for guide in GUIDES:
        shutil.copy(FOLDER.parent / "docs" / guide, tmp_path / "docs")
    command = [sys.executable, "-W", "error", shutil.copy(FOLDER / name, tmp_path / "examples")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout
