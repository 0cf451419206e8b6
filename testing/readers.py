"""The contract of readers of files: valid documents, the same each time, and typed errors for damaged files."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from quarry.engine.documents.document import Document
from quarry.engine.documents.reader import read_documents
from quarry.readers import FileReader, FileText, UnreadableError

__all__ = ["ReaderContract"]

_DAMAGES = 100


class ReaderContract:
    """Tests of a reader, given by a fixture ``reader``; a fixture ``content`` is a file that it reads, as bytes.

    Attributes:
        ending: the ending of its files.
    """

    ending: ClassVar[str] = ".tested"

    def test_the_texts_are_valid(self, reader: FileReader, content: bytes) -> None:
        texts = _texts(reader, content)
        assert texts
        for each in texts:
            assert each.text.strip() or each.title
            assert all(0 <= place <= len(each.text) for place in each.outline.starts)
            assert all(one <= other for one, other in pairwise(each.outline.starts))
            assert all(0 <= heading.start < heading.end <= len(each.text) for heading in each.outline.headings)
            assert all(one.end <= other.start for one, other in pairwise(each.outline.headings))
        assert len(texts) == len({each.part for each in texts})  # several documents have different ids

    def test_threads_read_the_same(self, reader: FileReader, content: bytes) -> None:
        with ThreadPoolExecutor(3) as pool:
            assert all(each == _texts(reader, content) for each in pool.map(_texts, [reader] * 6, [content] * 6))

    def test_the_file_becomes_documents(self, reader: FileReader, content: bytes, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / f"{name}{self.ending.upper()}").write_bytes(content)
        n_texts = len(_texts(reader, content))
        documents = self._read(reader, tmp_path)
        assert len({each.id for each in documents}) == len(documents) == 2 * n_texts
        assert len(self._read(reader, tmp_path / f"one{self.ending.upper()}")) == n_texts
        for each in documents:
            file = each.metadata["file"]
            assert isinstance(file, Mapping)
            assert file["type"] == self.ending[1:]

    def test_damaged_files_are_read_or_refused(self, reader: FileReader, content: bytes) -> None:
        generator = random.Random(0)
        cut = [content[: len(content) * part // 20] for part in range(20)]
        for damaged in (*cut, *(_damaged(content, generator) for _ in range(_DAMAGES)), b"\0\xff\xfe", b"\r\n"):
            with contextlib.suppress(UnreadableError):
                texts = _texts(reader, damaged)
                assert all(isinstance(each.text, str) and isinstance(each.title, str) for each in texts)

    def _read(self, reader: FileReader, path: Path) -> list[Document]:
        return list(read_documents(path, readers={self.ending: reader}))


def _texts(reader: FileReader, content: bytes) -> list[FileText]:
    read = reader(content)
    return [read] if isinstance(read, FileText) else list(read)


def _damaged(content: bytes, generator: random.Random) -> bytes:
    """Return a copy with up to eight bytes replaced, and perhaps a part removed."""
    changed = bytearray(content)
    for _ in range(generator.randint(1, 8)):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    if generator.random() < 0.3:
        low = generator.randrange(len(changed))
        del changed[low : low + generator.randrange(64)]
    return bytes(changed)
