"""The set-up of an environment by the Makefile, in real environments whose pip records what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Makes environments with a module in the place of pip, which fails as long as a file named `broken` lies in the
# working folder.
INTERPRETER = f"""#!/bin/sh
test "$2" = venv || exec {sys.executable} "$@"
{sys.executable} -m venv --without-pip "$3" || exit 1
mkdir -p "$3"/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/pip
cp pip.py "$3"/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/pip/__main__.py
"""
PIP = """
import pathlib, sys

with pathlib.Path("calls").open("a") as file:
    print(*sys.argv[1:], file=file)
sys.exit(pathlib.Path("broken").exists())
"""
# Of `make test`, which these tests may run in.
MAKE_VARIABLES = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}
CORE = "install --quiet --editable ."
DEVELOPMENT = "install --quiet --editable .[dev]"


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(repository / name, tmp_path)
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(INTERPRETER, "utf-8")
    interpreter.chmod(0o755)
    (tmp_path / "pip.py").write_text(PIP, "utf-8")
    return tmp_path


def set_up(project: Path) -> list[str]:
    """What pip was asked for by a set-up with the development extras."""
    calls = project / "calls"
    calls.write_text("", "utf-8")
    settings = [f"PYTHON={project / 'interpreter'}", "VENV=environment", "EXTRAS=dev"]
    variables = {name: value for name, value in os.environ.items() if name not in MAKE_VARIABLES}
    command = ["make", "environment/.stamp-dev", *settings]
    subprocess.run(command, cwd=project, env=variables, capture_output=True, check=False)
    return calls.read_text("utf-8").splitlines()


def packages(project: Path) -> Path:
    (found,) = (project / "environment").glob("lib/python*/site-packages")
    return found


def test_packages_are_installed_once(project: Path) -> None:
    assert set_up(project) == [CORE, DEVELOPMENT]
    assert set_up(project) == []


@pytest.mark.parametrize("finished", [False, True], ids=["core", "extras"])
def test_an_interrupted_set_up_starts_again_without_packages_that_are_not_whole(
    project: Path, finished: bool
) -> None:
    if finished:
        set_up(project)
        (project / "environment/.stamp-dev").unlink()
    (project / "broken").touch()
    assert set_up(project) == [DEVELOPMENT if finished else CORE]
    (project / "broken").unlink()
    for name, has_all_files in (("whole", True), ("half", False)):
        folder = packages(project) / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").touch()
        if has_all_files:
            (folder / "INSTALLER").touch()
    assert set_up(project) == ([DEVELOPMENT] if finished else [CORE, DEVELOPMENT])
    assert [path.name for path in packages(project).glob("*.dist-info")] == ["whole-1.0.dist-info"]
    assert set_up(project) == []


def test_a_changed_project_file_is_installed_into_the_environment(project: Path) -> None:
    set_up(project)
    (project / "pyproject.toml").touch()
    assert set_up(project) == [CORE, DEVELOPMENT]
