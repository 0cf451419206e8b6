"""The encoder of an open index: the given one, or the bundled one it was built with."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.bundled import BUNDLED, DEFAULT_NAME, INSTALLABLE, default_bundle_path
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.index.partition import OpenPartition
from quarry.engine.index.resources import ViewResources
from quarry.engine.index.view import View
from quarry.engine.options import OpenOptions
from quarry.formats.container.directory import Directory
from quarry.formats.errors import EncoderMismatch, FormatError
from quarry.formats.snapshot import Snapshot

OTHER = "all-MiniLM-L6-v2"
DOCS = [{"id": "a", "text": "bread and butter"}, {"id": "b", "text": "a ship at sea"}]
GIVEN = [{"id": "a", "vectors": [1.0, 0.0]}, {"id": "b", "vectors": [0.0, 1.0], "text": "a ship at sea"}]


@pytest.fixture(params=[None, 2], ids=["one folder", "shards"])
def shards(request: pytest.FixtureRequest) -> int | None:
    return request.param


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the manifest of the default encoder be read as if it were damaged."""
    real, manifest, other = io.open, default_bundle_path() / "bundle.json", tmp_path / "bundle.json"
    other.write_text("{", encoding="utf-8")

    def open_other(file: Path, *arguments: Any, **options: Any) -> Any:
        return real(other if file == manifest else file, *arguments, **options)

    monkeypatch.setattr(io, "open", open_other)


def test_a_damaged_default_encoder_stops_those_that_use_it(
    tmp_path: Path, shards: int | None, request: pytest.FixtureRequest
) -> None:
    engine.build(DOCS, tmp_path / "index", shards=shards)
    request.getfixturevalue("damaged")
    with pytest.raises(FormatError, match=r"bundle\.json"):
        Engine.open(tmp_path / "index")
    request.getfixturevalue("monkeypatch").undo()
    with Engine.open(tmp_path / "index") as index:
        assert index.search("sailing", k=1)[0].id == "b"


@pytest.mark.usefixtures("damaged")
def test_an_index_of_another_bundled_encoder_is_not_stopped(tmp_path: Path, shards: int | None) -> None:
    engine.build(DOCS, tmp_path / "index", encoder=OTHER, shards=shards)
    with Engine.open(tmp_path / "index", writable=True) as index:
        assert index.search("sailing on the ocean", k=1)[0].id == "b"
        index.add([{"id": "c", "text": "rain in the hills"}])
        index.commit()
        assert index.encoder.identity == INSTALLABLE[OTHER].identity
        assert index.search("wet weather", k=1)[0].id == "c"


@pytest.mark.usefixtures("damaged")
def test_an_index_without_an_encoder_is_not_stopped(tmp_path: Path, shards: int | None) -> None:
    engine.build(GIVEN, tmp_path / "index", dim=2, shards=shards)
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add([{"id": "c", "vectors": [0.8, 0.6]}])
        index.commit()
        assert [hit.id for hit in index.search(vector=[1.0, 0.2], k=2)] == ["a", "c"]
        assert [hit.id for hit in index.search("ship", k=2)] == ["b"]
        with pytest.raises(EncoderMismatch, match="without an encoder"):
            index.search("ship", mode="dense")


@pytest.mark.usefixtures("damaged")
def test_an_index_of_an_applications_encoder_is_not_stopped(tmp_path: Path, shards: int | None) -> None:
    encoder = WordEncoder()
    engine.build(DOCS, tmp_path / "index", encoder=encoder, shards=shards)
    with Engine.open(tmp_path / "index", writable=True) as index:
        vector = encoder.encode_query("ship")
        assert index.search(vector=vector, k=1)[0].id == "b"
        assert [hit.id for hit in index.search("ship", k=2, mode="lexical")] == ["b"]
        for refused in (lambda: index.search("ship"), lambda: index.add([{"id": "c", "text": "rain"}])):
            with pytest.raises(EncoderMismatch, match=f"found {DEFAULT_NAME} .{BUNDLED[DEFAULT_NAME]}"):
                refused()
        index.add([{"id": "c", "vectors": np.ones(encoder.dim).tolist()}])
        index.commit()
        assert len(index) == 3
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        assert index.search("ship", k=1)[0].id == "b"


def test_a_bundle_is_opened_once_for_all_generations(tmp_path: Path, shards: int | None) -> None:
    engine.build(DOCS, tmp_path / "index", encoder=OTHER, shards=shards)
    with Engine.open(tmp_path / "index") as reader:
        with Engine.open(tmp_path / "index", writable=True) as writer:
            writer.delete("a")
            writer.commit()
        before = reader.encoder
        assert reader.refresh()
        assert reader.search("sailing", k=1)[0].id == "b"
        assert reader.encoder is before


def test_resources_know_whether_texts_can_be_encoded(tmp_path: Path) -> None:
    engine.build(DOCS, tmp_path / "index", encoder=WordEncoder())
    snapshot = Snapshot(Directory(tmp_path / "index"))
    record = snapshot.manifest.encoder
    unchosen, right = (ViewResources(OpenOptions(threads=1), None, each) for each in (None, WordEncoder()))
    partition = OpenPartition("index", snapshot, unchosen.options, unchosen.device)
    assert not unchosen.has_encoder_of(record)
    assert isinstance(View(tmp_path, [partition], unchosen).writing_encoder, NoEncoder)
    assert right.has_encoder_of(record)
    assert View(tmp_path, [partition], right).writing_encoder is right.chosen_encoder
    snapshot.close()
