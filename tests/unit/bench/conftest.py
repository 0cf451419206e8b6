"""Collections and folders of the tests of measurements."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.bench.readme_run import ReadmeRun, write_subjects


@pytest.fixture
def beir_folder(tmp_path: Path, small_corpus: list[dict[str, object]]) -> Path:
    """The small corpus with a question for each subject, whose four documents answer it."""
    return write_subjects(tmp_path / "subjects", small_corpus)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def copied_run(readme_run: ReadmeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadmeRun:
    """The results of bench/README.md in folders of this test's own."""
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(readme_run.cache))
    copy = shutil.copytree(readme_run.results, tmp_path / "out")
    return ReadmeRun(readme_run.collection, readme_run.cache, copy)
