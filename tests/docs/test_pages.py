"""The examples in README.md and the guides work as shown."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.models.embedding_models import stand_in_modules

import quarry
from quarry.engine.bundled import default_bundle_path
from quarry.engine.cli.commands import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    Path("README.md"),
    Path("CONTRIBUTING.md"),
    *(path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]*)(#[^)]*)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
COLLECTIONS = {"docs.jsonl": ("moon", "bread"), "more.jsonl": ("tea",)}


def commands(block: str) -> dict[str, list[str]]:
    """Return the lines that begin with a prompt, without it, and the words of each."""
    lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return {line: shlex.split(line, comments=True) for line in lines}


def prepare_files() -> None:
    """Write the files that the examples of guides are about."""
    for name, ids in COLLECTIONS.items():
        lines = [json.dumps({"id": document_id, "text": f"About {document_id}."}) for document_id in ids]
        Path(name).write_text("\n".join(lines))
    Path("bundle").symlink_to(default_bundle_path())
    Path("papers").mkdir()
    Path("papers/moon.md").write_text("# The Moon\n\nIts pull raises the tides.\n")


def run_commands(block: str) -> None:
    """Run the commands of a block that are Quarry's, or make files."""
    for line, words in commands(block).items():
        if words[0] == "quarry" and ">" not in words:
            assert main(words[1:]) == 0, words
        elif words[0] in ("mkdir", "quarry"):
            subprocess.run(line.replace("quarry ", f"{sys.executable} -m quarry ", 1), shell=True, check=True)


def printed(text: str) -> list[str]:
    """Return the lines that are not empty; relevance differs between processors in its second digit."""
    rounded = re.sub(r"\b[01]\.\d\d\b", lambda number: f"{float(number[0]):.1f}", text)
    return [line.rstrip() for line in rounded.splitlines() if line.strip()]


NEEDED = {Path("docs/server.md"): "starlette"}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    if page in NEEDED:
        pytest.importorskip(NEEDED[page], reason="the code of this page needs this library")
    monkeypatch.chdir(tmp_path)
    if page.name != "README.md":  # which begins in an empty folder
        prepare_files()
    for name, module in stand_in_modules().items():  # substitutes for optional libraries and for the network
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, object] = {}
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    n_blocks, output = len(blocks), ""
    if page.name == "README.md":  # runs a second time, too
        blocks *= 2
    for number, (kind, block) in enumerate(blocks):
        if kind == "python":
            exec(compile(block, f"{page} block {number}", "exec"), names)
        elif kind == "console":
            run_commands(block)
        elif kind == "text" and page.name == "README.md":
            assert printed(output) == printed(block)
        output, err = capsys.readouterr()
        assert err == ""
        shown = [line for line in block.splitlines() if kind == "console" and not line.startswith("$ ")]
        if shown and number < n_blocks:  # what a second run prints of the changes is another thing
            assert printed(output) == printed("\n".join(shown))


@pytest.mark.parametrize("library", ["langchain_core", "llama_index", "haystack"])
def test_the_code_for_a_framework_runs(library: str, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip(library, reason="the code is for this library")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs/integrations.md").read_text(encoding="utf-8"))
    name = f"quarry.integrations.{library.removesuffix('_core')}"
    (code,) = (block for kind, block in blocks if kind == "py" and name in block)
    exec(compile(code, "docs/integrations.md", "exec"), {})
    assert (tmp_path / "notes").is_dir()


def test_the_commands_of_the_page_about_the_server_run(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("uvicorn", reason="serving needs the extra server")
    if shutil.which("curl") is None:
        pytest.skip("the requests of the page are made by curl")
    from support.server.running_server import WRITE_KEY, running_command

    monkeypatch.chdir(tmp_path)
    prepare_files()
    for folder in ("notes", "archive/papers-index"):
        quarry.build([{"id": "tides", "text": "The sea level changes.", "metadata": {"year": 2020}}], folder)
    blocks = BLOCK.findall((ROOT / "docs/server.md").read_text(encoding="utf-8"))
    serving, requests = (block for kind, block in blocks if kind == "sh")
    (error,) = (block for kind, block in blocks if kind == "json")
    monkeypatch.setenv("QUARRY_WRITE_KEY", WRITE_KEY)
    with running_command(*shlex.split(serving)[2:], QUARRY_WRITE_KEY=WRITE_KEY) as (_, server, _):
        script = requests.replace("http://127.0.0.1:8000/", server.url)
        answers = subprocess.run(script, shell=True, check=True, stdout=subprocess.PIPE, text=True).stdout
        assert answers.startswith('{"hits":[{"id":"tides",')
        assert answers.endswith('{"n_added":1,"generation":2}')
        assert server.search("notes", query="sea", k=0).json == json.loads(error)


def anchors(path: Path) -> set[str]:
    """Return what links name headings of a page by: their words in lower case, joined by hyphens."""
    headings = HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, part in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        path = ROOT / page.parent / target if target else ROOT / page
        assert path.exists(), target
        if part and path.suffix == ".md":
            assert part[1:] in anchors(path), f"{target}{part}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_make_targets_of_a_page_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for _, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for words in commands(block).values():
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_that_are_not_run_exist(page: Path, capsys) -> None:
    """Commands in blocks of the language sh need a server, a checkpoint or judged queries."""
    for kind, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in block.splitlines() if kind == "sh" else ():
            if line.startswith("quarry "):
                words = shlex.split(line)
                with pytest.raises(SystemExit) as ended:
                    main([words[1], "--help"])
                assert ended.value.code == 0
                known = capsys.readouterr().out
                assert [word for word in words if word.startswith("--") and word not in known] == []


def test_the_readme_is_short_and_begins_with_an_example() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = next(block for kind, block in BLOCK.findall(text) if kind == "python")
    assert len(first.splitlines()) <= 12
    assert len(text.splitlines()) <= 120


def test_every_guide_is_linked_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {path.as_posix() for path in PAGES if path.parent.name == "docs"} <= linked


def test_every_error_is_in_the_guide() -> None:
    from quarry.formats import errors

    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert [name for name in errors.__all__ if f"`{name}`" not in page and f"quarry.{name}" not in page] == []
    assert issubclass(quarry.IndexNotFound, quarry.QuarryError)
