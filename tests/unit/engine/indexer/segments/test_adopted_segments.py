"""Documents of adopted segments can be deleted before they are committed, like new documents."""

from __future__ import annotations

from contextlib import closing

from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.segments.adopted_segments import StagedSegment
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder(dim=8)


def staged(path, documents):
    engine.build(documents, path, encoder=ENCODER)
    with closing(Snapshot(Directory(path))) as snapshot:
        return [StagedSegment(path, segment.record.file) for segment in snapshot.segments]


def test_delete_by_filter_and_by_id(tmp_path):
    documents = [{"id": str(number), "text": f"w{number}", "metadata": {"n": number}} for number in range(9)]
    segments = staged(tmp_path / "a", documents[:4]) + staged(tmp_path / "b", documents[3:])
    folder = tmp_path / "index"
    folder.mkdir()
    with closing(Snapshot(Directory(tmp_path / "a"))) as snapshot:
        settings = snapshot.manifest.settings
    writer = IndexWriter(Directory(folder), ENCODER, 1, fresh=settings)
    assert writer.adopt([{0: segment} for segment in segments]) == 10
    assert writer.delete_matching(parse_filter({"n": {"$lt": 5}})) == 5
    assert writer.delete(["7", "2"]) == 1
    writer.commit()
    writer.close()
    with Engine.open(folder, encoder=ENCODER) as index:
        assert sorted(index.ids()) == ["5", "6", "8"]
        index.verify()
