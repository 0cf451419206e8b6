"""The examples in README.md and the guides work as shown."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from support.models.embedding_models import stand_in_modules

from quarry.engine.bundled import default_bundle_path
from quarry.engine.cli.commands import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    Path("README.md"),
    Path("CONTRIBUTING.md"),
    *(path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
COLLECTIONS = {"docs.jsonl": ("moon", "bread"), "more.jsonl": ("tea",)}


def commands(block: str) -> list[list[str]]:
    """Return the words of each line that begins with a prompt."""
    return [shlex.split(line[2:], comments=True) for line in block.splitlines() if line.startswith("$ ")]


NEEDED = {Path("docs/server.md"): "starlette"}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    if page in NEEDED:
        pytest.importorskip(NEEDED[page], reason="the code of this page needs it")
    monkeypatch.chdir(tmp_path)
    for name, ids in COLLECTIONS.items():
        lines = [json.dumps({"id": document_id, "text": f"About {document_id}."}) for document_id in ids]
        Path(name).write_text("\n".join(lines))
    for name, module in stand_in_modules().items():  # substitutes for optional libraries and for the network
        monkeypatch.setitem(sys.modules, name, module)
    Path("bundle").symlink_to(default_bundle_path())
    Path("papers").mkdir()
    Path("papers/moon.md").write_text("# The Moon\n\nIts pull raises the tides.\n")
    names: dict[str, object] = {}
    for number, (kind, block) in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))):
        if kind == "python":
            exec(compile(block, f"{page} block {number}", "exec"), names)
        elif kind == "console":
            for words in commands(block):
                if words[0] == "quarry":
                    assert main(words[1:]) == 0, words
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, _ in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_make_targets_of_a_page_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for _, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for words in commands(block):
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words


def test_the_readme_is_short_and_begins_with_an_example() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = next(block for kind, block in BLOCK.findall(text) if kind == "python")
    assert len(first.splitlines()) <= 12
    assert len(text.splitlines()) <= 120


def test_every_guide_is_linked_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {path.as_posix() for path in PAGES if path.parent.name == "docs"} <= linked


def test_every_error_is_in_the_guide() -> None:
    import quarry
    from quarry.formats import errors

    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert [name for name in errors.__all__ if f"`{name}`" not in page and f"quarry.{name}" not in page] == []
    assert issubclass(quarry.IndexNotFound, quarry.QuarryError)
