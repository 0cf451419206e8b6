"""The example of a package with parts of its own is found by its entry points, and passes the contracts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import pathlib, quarry

pathlib.Path("films").mkdir()
pathlib.Path("films/one.srt").write_text("1\\n00:00:01,000 --> 00:00:02,000\\nThe ship sails at dawn.\\n")
pathlib.Path("films/two.SRT").write_text("1\\n00:00:01,000 --> 00:00:02,000\\nWho ate the bread?\\n")
quarry.build("films", "index", encoder="letters", representation="halves", workers=1)
with quarry.Engine.open(
    "index", backend="products", encoder="letters", reranker="shared-words", writable=True
) as index:
    hit = index.search("sailing ships", mode="dense", rerank=2, k=1)[0]
    print(hit.id, hit.metadata["file"]["type"], *index.stats()["backend"]["chosen"])
    print(index.stats()["representation"], index.encoder.name)
    pathlib.Path("films/three.srt").write_text("1\\n00:00:01,000 --> 00:00:02,000\\nGood night.\\n")
    print(*index.sync("films").added, len(index))
"""


@pytest.fixture(scope="module")
def installed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the example into a folder, and return an environment in which it is found."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(repository / "examples" / "extension", folder / "source")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", *options, "-t", "site", "./source"]
    subprocess.run(command, cwd=folder, check=True)
    places = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_parts_are_used_by_their_names(installed: dict[str, str], tmp_path: Path) -> None:
    lines = ["if __name__ == '__main__':", *PROGRAM.strip().split("\n")]
    (tmp_path / "program.py").write_text("\n    ".join(lines), encoding="utf-8")
    assert run(["-W", "error", "program.py"], tmp_path, installed).splitlines() == [
        "one.srt srt products",
        "{'name': 'halves', 'n_parts': 2} letters-128",
        "three.srt 3",
    ]


def test_it_passes_the_contracts(installed: dict[str, str], repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "examples" / "extension" / "tests", tmp_path / "tests")
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests"]
    assert " passed" in run(words, tmp_path, installed)
