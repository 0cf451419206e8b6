"""What README.md shows works as it is shown."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from quarry.engine.cli.commands import main

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return [content for kind, content in BLOCK.findall(text) if kind == language]


def shell_commands(text: str) -> list[list[str]]:
    lines = [line for block in blocks(text, "console") for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


def test_the_python_examples_run(readme: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    examples = blocks(readme, "python")
    assert examples
    names: dict[str, object] = {}
    for number, example in enumerate(examples):
        exec(compile(example, f"README.md example {number}", "exec"), names)
    assert capsys.readouterr().out.startswith("moon ")


def test_the_first_example_is_short(readme: str) -> None:
    assert len(blocks(readme, "python")[0].splitlines()) <= 12


def test_the_quarry_commands_run(readme: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name, ids in (("docs.jsonl", ("moon", "bread")), ("more.jsonl", ("tea",))):
        lines = [json.dumps({"id": document_id, "text": f"About {document_id}."}) for document_id in ids]
        Path(name).write_text("\n".join(lines))
    commands = [words for words in shell_commands(readme) if words[0] == "quarry"]
    assert {words[1] for words in commands} >= {"build", "search", "add", "delete", "info", "verify"}
    for words in commands:
        assert main(words[1:]) == 0, words
        assert capsys.readouterr().err == ""


def test_the_make_targets_exist(readme: str, repository: Path) -> None:
    makefile = (repository / "Makefile").read_text()
    shown = {words[1] for words in shell_commands(readme) if words[0] == "make"}
    assert shown >= {"demo", "test"}
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_links_lead_somewhere(readme: str, repository: Path) -> None:
    for target in LINK.findall(readme):
        assert (repository / target).exists(), target
