"""Fixtures of the tests of measurements: collections and folders."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.bench.readme_run import ReadmeRun, write_subjects

from bench.data.collections import Collection


@pytest.fixture
def beir_folder(tmp_path: Path, small_corpus: list[dict[str, object]]) -> Path:
    """Write the small corpus with a question for each subject, for which its four documents are relevant."""
    return write_subjects(tmp_path / "subjects", small_corpus)


@pytest.fixture
def coded_collection(small_corpus: list[dict[str, object]]) -> Collection:
    """A collection with enough documents for codes, and a query that is the text of one of them."""
    documents = {str(each["id"]): str(each["text"]) for each in small_corpus} | {
        f"{each['id']}-{number}": f"{each['text']} {number}" for number in range(12) for each in small_corpus
    }
    name = str(small_corpus[0]["id"])
    return Collection("small", "test", documents, {"q": documents[name]}, {"q": {name: 1}})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a new cache for this test."""
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def copied_run(readme_run: ReadmeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadmeRun:
    """Copy the results of bench/README.md for this test."""
    monkeypatch.setenv("QUARRY_BENCH_CACHE", str(readme_run.cache))
    copy = shutil.copytree(readme_run.results, tmp_path / "out")
    return replace(readme_run, results=copy)
