"""Readers beside a writer: `refresh` and `verify`."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from support.faults.watched_directory import WatchedDirectory
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.index.verification import verify_index
from quarry.engine.options import MODES
from quarry.formats.container.directory import Directory
from quarry.formats.errors import ChecksumMismatch, EncoderMismatch, FormatError, IndexNotFound
from quarry.formats.manifest import Manifest

ENCODER = WordEncoder(dim=64)


def docs(*numbers):
    return [{"id": f"d{number}", "text": f"text{number} shared words"} for number in numbers]


@pytest.fixture
def path(tmp_path):
    engine.build(docs(*range(20)), tmp_path / "index", encoder=ENCODER)
    return tmp_path / "index"


@pytest.fixture
def index(path):
    with Engine.open(path, writable=True, encoder=ENCODER) as opened:
        yield opened


@pytest.fixture
def reader(path):
    with Engine.open(path, encoder=ENCODER) as opened:
        yield opened


def n_found(index):
    """Return the number of hits of each mode, and of a vector."""
    dense = index.search_vectors([ENCODER.encode_query("shared words")], k=99)[0]
    return [len(index.search("shared words", k=99, mode=mode)) for mode in MODES] + [len(dense)]


class TestRefresh:
    def test_at_every_search(self, path, index, reader):
        with Engine.open(path, encoder=ENCODER, refresh=True) as following:
            for number in range(20, 25):
                index.add(docs(number))
                index.commit()
                assert n_found(following) == n_found(index) == [number + 1] * 4
                assert following.refresh() is False
            assert n_found(reader) == [20] * 4

    def test_each_request_alone_does_it(self, path, index):
        vector = ENCODER.encode_query("shared words")
        with Engine.open(path, encoder=ENCODER, refresh=True) as following:
            searches = [lambda mode=mode: following.search("shared words", k=99, mode=mode) for mode in MODES]
            searches += [
                lambda: following.search_vectors([vector], k=99)[0],
                lambda: following,
                lambda: range(following.count()),
                lambda: range(following.count({"id": {"$exists": True}})),
                lambda: list(following),
                lambda: list(following.documents(sort="id")),
                lambda: list(following.ids()),
                lambda: following.facets("id").values,
                lambda: following.get(list(index.ids())),
                lambda: [each for each in index.ids() if each in following],
                lambda: range(following.stats()["n_documents"]),
            ]
            for number, search in enumerate(searches, 20):
                index.add(docs(number))
                index.commit()
                assert len(search()) == number + 1

    def test_another_encoder_is_noticed(self, path):
        with Engine.open(path, encoder=ENCODER, refresh=True) as following:
            engine.build(docs(1), path, encoder=WordEncoder(dim=32), overwrite=True)
            with pytest.raises(EncoderMismatch):
                following.search("shared words")

    def test_an_index_that_is_gone(self, path):
        with Engine.open(path, encoder=ENCODER, refresh=True) as following:
            shutil.rmtree(path)
            with pytest.raises(IndexNotFound):
                following.search("shared words")

    def test_an_index_that_was_put_in_the_place_of_this_one(self, path, reader, tmp_path):
        """`refresh` notices an index that replaced this one, also if it has the same generation."""
        engine.build(docs(1, 2), tmp_path / "new", encoder=ENCODER)
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "new", path)
        assert len(reader) == 20
        assert reader.refresh()
        assert len(reader) == 2
        assert n_found(reader) == [2] * 4
        assert not reader.refresh()


class TestVerify:
    def test_no_file_is_read_twice(self, path, index):
        """Segments are read once, so that a verification ends although a writer commits all the time."""
        read = []

        def reading(name):
            read.append(name)
            if name.endswith(".del") and len(index) > 8:
                index.delete(f"d{len(index) - 1}")
                index.commit()

        index.delete(f"d{len(index) - 1}")
        index.commit()
        report = verify_index(WatchedDirectory(path, reading))
        assert report.n_documents == 8
        assert len([name for name in read if name.endswith(".seg")]) == 2  # checked, and opened in the end
        assert report.n_bytes == sum(file.stat().st_size for file in path.iterdir() if file.name != "write.lock")

    def test_references_between_files(self, path):
        """Valid files that do not belong together are refused."""
        directory = Directory(path)
        manifest = Manifest.load(directory, 1)
        (segment,) = manifest.segments
        manifest.next((dataclasses.replace(segment, n_docs=21),), ()).commit(directory)
        with pytest.raises(FormatError, match="wrong number of documents"):
            verify_index(directory)

    def test_an_index_that_cannot_be_opened(self, path, index):
        """`verify_index` reports all errors of an index that cannot be opened, not only the first."""
        index.add(docs(20))
        index.commit()
        segments = sorted(path.glob("*.seg"))
        for segment in segments:
            data = bytearray(segment.read_bytes())
            data[-70] ^= 1
            segment.unlink()
            segment.write_bytes(data)
        with pytest.raises(FormatError, match="2 errors") as caught:
            verify_index(Directory(path))
        assert {finding.path for finding in caught.value.findings} == set(segments)
        assert {type(finding) for finding in caught.value.findings} == {ChecksumMismatch}

    def test_no_index(self, tmp_path):
        with pytest.raises(IndexNotFound):
            verify_index(Directory(tmp_path))
