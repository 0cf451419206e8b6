"""Every path that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PATH = re.compile(r"(?<![\w/.-])(?:bench|engine|exporters|formats|tests|\.ci)/[\w./*-]*")


@pytest.mark.parametrize(("page", "n_paths_at_least"), [("ARCHITECTURE.md", 20), ("README.md", 1)])
def test_the_paths_on_a_page_exist(repository: Path, page: str, n_paths_at_least: int) -> None:
    paths = {path.rstrip(".") for path in PATH.findall((repository / page).read_text(encoding="utf-8"))}
    assert len(paths) >= n_paths_at_least
    missing = sorted(path for path in paths if not any(repository.glob(path.rstrip("/"))))
    assert not missing


@pytest.mark.parametrize("package", ["engine", "exporters", "formats"])
def test_the_map_names_every_module(repository: Path, package: str) -> None:
    named = set(PATH.findall((repository / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    modules = [path.relative_to(repository).as_posix() for path in (repository / package).rglob("[!_]*.py")]
    assert len(modules) > 20
    assert [module for module in modules if module not in named] == []
