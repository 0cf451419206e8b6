"""Every path that a page names exists; every package is documented, on the map, and has unit tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGES = (
    *("bench", "distributed", "engine", "exporters", "formats"),
    *("integrations", "readers", "server", "testing", "training"),
)
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(PACKAGES)}|tests|\.ci)/[\w./*-]*")


@pytest.mark.parametrize(("page", "n_paths_at_least"), [("ARCHITECTURE.md", 20), ("README.md", 1)])
def test_the_paths_on_a_page_exist(repository: Path, page: str, n_paths_at_least: int) -> None:
    paths = {path.rstrip(".") for path in PATH.findall((repository / page).read_text(encoding="utf-8"))}
    assert len(paths) >= n_paths_at_least
    missing = sorted(path for path in paths if not any(repository.glob(path.rstrip("/"))))
    assert not missing


def packages(repository: Path) -> list[Path]:
    """Return the folders that contain Python modules, below the top-level packages."""
    found = [path.parent for top in PACKAGES for path in (repository / top).rglob("*.py")]
    assert len(found) > 200
    return sorted({folder for folder in found if folder.name != "__pycache__"})


def test_every_package_has_a_docstring(repository: Path) -> None:
    for folder in packages(repository):
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert docstring, folder


def test_every_package_is_on_the_map(repository: Path) -> None:
    page = (repository / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in PATH.findall(page)}
    folders = [folder.relative_to(repository).as_posix() for folder in packages(repository)]
    assert [folder for folder in folders if folder not in named] == []


TESTED_ELSEWHERE = {"engine/pyinstaller"}  # tests/api/test_installed.py runs it in a frozen program


def test_unit_tests_mirror_the_packages(repository: Path) -> None:
    """Each package with a module has a folder of tests, and each folder of tests has a package."""
    with_modules = {
        folder.relative_to(repository).as_posix()
        for folder in packages(repository)
        if any(path.name != "__init__.py" for path in folder.glob("*.py"))
    }
    units = repository / "tests" / "unit"
    tested = {path.parent.relative_to(units).as_posix() for path in units.rglob("test_*.py")}
    assert with_modules - TESTED_ELSEWHERE - tested == set()
    assert tested - with_modules == set()
