"""The commands in bench/README.md run as they are shown."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from support.bench.readme_run import ReadmeRun

from bench.__main__ import COMMANDS, main, make_parser
from bench.data.collections import docstrings_folder

COMMAND = re.compile(r"(?:^\$ |`)(python -m bench [^`\n]+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")
RAW = re.compile(r"bench/results/\w+\.\w+")
NEEDS_TORCH = {"gpu"}


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "bench" / "README.md").read_text(encoding="utf-8")


def test_the_commands_of_the_first_section_run_in_sequence(readme_run: ReadmeRun) -> None:
    assert len(readme_run.statuses) == 5
    assert set(readme_run.statuses.values()) == {0}
    results = {path.name for path in readme_run.results.iterdir()}
    names = [shlex.split(command)[3] for command in readme_run.statuses if command.startswith("python")]
    assert {f"{name}.jsonl" for name in names} - results == {"collection.jsonl", "report.jsonl"}
    assert "report.md" in results


def test_the_collection_of_docstrings_is_made_once(tmp_path: Path) -> None:
    folder = docstrings_folder(tmp_path)
    states = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}
    assert len(states) == 3
    assert len((folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()) > 1000
    assert docstrings_folder(tmp_path) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")} == states


def test_every_command_on_the_page_has_valid_arguments(page: str) -> None:
    shown = [shlex.split(command)[3:] for command in COMMAND.findall(page)]
    shown = [words for words in shown if words and words[0] != "NAME"]
    assert {words[0] for words in shown} == COMMANDS.keys()
    for name, *arguments in shown:
        if name in NEEDS_TORCH:
            pytest.importorskip("torch", reason="these measurements need torch")
        make_parser(name).parse_args(arguments)


def test_the_links_and_raw_results_exist(page: str, repository: Path) -> None:
    for target in LINK.findall(page):
        assert (repository / "bench" / target).exists(), target
    for path in RAW.findall(page):
        assert (repository / path).exists(), path


def test_missing_parts_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("QUARRY_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for words, message in (
        (["prepare", "nothing-of-the-kind"], "no collection 'nothing-of-the-kind'"),
        (["judge", "nothing", "--run", "a.run"], "no collection 'nothing'"),
    ):
        assert main(words) == 1
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1
        assert message in printed
    for module in ("ir_measures", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["tradeoff"]) == 1
    printed = capsys.readouterr().err
    assert printed == (
        "python -m bench tradeoff: needs ir_measures, matplotlib, not installed here: pip install '.[bench]'\n"
    )
