"""The set-up of an environment by the Makefile, with an interpreter that records what it is asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# Answers what the Makefile asks: a version check (-c), `-m venv [--clear] FOLDER`, and `-m pip install ...`,
# which fails here as long as a file named `broken` lies in the working folder.
INTERPRETER = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$2" in
venv)
    for folder; do :; done
    [ "$3" != --clear ] || rm -rf "$folder"
    mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python"
    ;;
pip) test ! -e broken ;;
esac
"""


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(repository / name, tmp_path)
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(INTERPRETER, "utf-8")
    interpreter.chmod(0o755)
    return tmp_path


def set_up(project: Path) -> list[str]:
    """What the interpreters were asked for by a set-up with the development extras, the version check aside."""
    calls = project / "calls"
    calls.write_text("", "utf-8")
    command = ["make", "environment/.stamp-dev", f"PYTHON={project / 'interpreter'}", "VENV=environment"]
    variables = {"PATH": "/usr/bin:/bin", "CALLS": str(calls)}
    subprocess.run(command, cwd=project, env=variables, capture_output=True, check=False)
    return [line for line in calls.read_text("utf-8").splitlines() if not line.startswith("-c ")]


CORE = "-m pip install --quiet --editable ."
DEVELOPMENT = "-m pip install --quiet --editable .[dev]"


def test_packages_are_installed_once(project: Path) -> None:
    assert set_up(project) == ["-m venv environment", CORE, DEVELOPMENT]
    assert set_up(project) == []


@pytest.mark.parametrize("finished", [False, True], ids=["core", "extras"])
def test_an_interrupted_set_up_begins_anew(project: Path, finished: bool) -> None:
    if finished:
        set_up(project)
        (project / "environment/.stamp-dev").unlink()
    (project / "broken").touch()
    assert set_up(project)[-1] == (DEVELOPMENT if finished else CORE)
    (project / "broken").unlink()
    (project / "environment/half-installed").touch()
    assert set_up(project) == ["-m venv --clear environment", CORE, DEVELOPMENT]
    assert not (project / "environment/half-installed").exists()
    assert set_up(project) == []


def test_a_changed_project_file_is_installed_into_the_environment(project: Path) -> None:
    set_up(project)
    stamp = project / "environment/.stamp-dev"
    (project / "pyproject.toml").touch()
    assert set_up(project) == ["-m venv environment", CORE, DEVELOPMENT]
    assert stamp.exists()
