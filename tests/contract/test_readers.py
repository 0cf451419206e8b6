"""The contract of readers of files, with one of each kind."""

from __future__ import annotations

import json

import pytest
from support.indexes.file_samples import docx, epub, paragraph, pdf

from quarry.readers import FileReader
from quarry.readers.files.kinds import FileKinds
from quarry.testing import ReaderContract

MESSAGE = b"From: a@b.c\nSubject: Bread\nContent-Type: text/plain\n\nYeast makes it rise.\n"
FILES = {
    ".txt": b"On bread.\nOn tea.\n",
    ".py": b"# coding: latin-1\nprint('\xe9')\n",
    ".md": b"# Bread\n\nYeast.\n\n## Flour\n\nWheat.\n",
    ".rst": b"Bread\n=====\n\nYeast.\n",
    ".html": b"<title>Bread</title><h1>Bread</h1><p>Yeast &amp; flour<p>Wheat",
    ".ipynb": json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Bread\n", "Yeast"]}]}).encode(),
    ".eml": MESSAGE,
    ".mbox": b"From x\n" + MESSAGE + b"\nFrom y\n" + MESSAGE,
    ".docx": docx(paragraph("Bread", "berschrift1") + paragraph("Yeast makes it rise."), title="Bread"),
    ".epub": epub({"one": "<html><body><h1>Bread</h1><p>Yeast</p></body></html>"}, title="Bread"),
}


@pytest.fixture(params=FILES)
def ending(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def content(ending: str) -> bytes:
    return FILES[ending]


@pytest.fixture
def reader(ending: str) -> FileReader:
    return FileKinds().of_name(f"name{ending}").read


class TestContract(ReaderContract):
    pass


def test_a_pdf_file_is_read_on_several_threads() -> None:
    """Only this, as each file is read by a process of its own."""
    pytest.importorskip("pypdfium2", reason="PDF files need this library")
    TestContract().test_the_texts_are_valid(FileKinds().of_name("name.pdf").read, pdf(["On bread.", "On tea."]))
