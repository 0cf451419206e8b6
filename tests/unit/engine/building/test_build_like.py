"""`build(..., like=INDEX)` uses the settings and the quantizer of another index."""

from __future__ import annotations

import json

import pytest
from support.indexes.sharded import columns, random_documents, random_queries
from support.indexes.stored import stored
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import EncoderMismatch, Engine, IndexNotFound, InvalidSetting, KMeans
from quarry.engine.cli.commands import main
from quarry.engine.thresholds import Thresholds

ENCODER = WordEncoder(dim=16)
LISTS = Thresholds(calibration_queries=64, list_rows=30, training_rows=30)
DOCUMENTS = random_documents(120)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "index"
    settings = {"representation": KMeans(3), "centroids": "none", "code_bytes": 4, "language": "none", "k1": 2.0}
    engine.build(DOCUMENTS, path, encoder=ENCODER, thresholds=LISTS, seed=4, **settings)
    return path


def manifest(path):
    with stored(path) as snapshot:
        return snapshot.manifest


@pytest.mark.parametrize("n", [0, 5, 120])
def test_settings_and_quantizer(model, tmp_path, n):
    engine.build(DOCUMENTS[:n], tmp_path / "index", encoder=ENCODER, thresholds=LISTS, like=model)
    found, expected = manifest(tmp_path / "index"), manifest(model)
    assert found.settings == expected.settings
    assert [each.name for each in found.quantizers] == [each.name for each in expected.quantizers][: n > 0]


def test_the_answers_of_a_second_build_are_the_same(model, tmp_path):
    engine.build(DOCUMENTS, tmp_path / "index", encoder=ENCODER, thresholds=LISTS, like=model)
    with Engine.open(model, encoder=ENCODER) as one, Engine.open(tmp_path / "index", encoder=ENCODER) as other:
        for query in random_queries(20):
            assert columns(one.search(query)) == columns(other.search(query))


def test_shards(model, tmp_path):
    engine.build(DOCUMENTS, tmp_path / "shards", encoder=ENCODER, thresholds=LISTS, like=model, shards=2)
    names = {file.name for file in (tmp_path / "shards").glob("*/*.quant")}
    assert names == {file.name for file in model.glob("*.quant")}
    engine.build(DOCUMENTS, tmp_path / "one", encoder=ENCODER, thresholds=LISTS, like=tmp_path / "shards")
    assert {file.name for file in (tmp_path / "one").glob("*.quant")} == names


def test_an_index_without_quantizer(tmp_path):
    engine.build(DOCUMENTS[:3], tmp_path / "small", encoder=ENCODER, code_bytes=2)
    engine.build(DOCUMENTS, tmp_path / "large", encoder=ENCODER, thresholds=LISTS, like=tmp_path / "small")
    found = manifest(tmp_path / "large")
    assert found.settings.code_bytes == 2
    assert len(found.quantizers) == 1


def test_an_index_like_the_one_that_it_replaces(model, tmp_path):
    engine.build(DOCUMENTS[:50], tmp_path / "index", encoder=ENCODER, thresholds=LISTS, like=model)
    engine.build(
        DOCUMENTS, tmp_path / "index", encoder=ENCODER, thresholds=LISTS, like=tmp_path / "index", overwrite=True
    )
    assert manifest(tmp_path / "index").settings == manifest(model).settings
    with Engine.open(tmp_path / "index") as index:
        assert index.verify().n_documents == len(DOCUMENTS)


def test_what_is_refused(model, tmp_path):
    for given in ({"k1": 2.0}, {"representation": "kmeans"}, {"language": "german"}):
        with pytest.raises(InvalidSetting, match=f"given together with an index.*{next(iter(given))}"):
            engine.build(DOCUMENTS, tmp_path / "index", encoder=ENCODER, like=model, **given)
    with pytest.raises(EncoderMismatch, match="another encoder"):
        engine.build(DOCUMENTS, tmp_path / "index", encoder=WordEncoder(dim=16, name="another"), like=model)
    with pytest.raises(IndexNotFound):
        engine.build(DOCUMENTS, tmp_path / "index", encoder=ENCODER, like=tmp_path / "missing")
    with pytest.raises(InvalidSetting):
        engine.build(DOCUMENTS, tmp_path / "index", encoder=ENCODER, like=5)
    assert not (tmp_path / "index").exists()


def test_on_the_command_line(tmp_path, capsys):
    (tmp_path / "docs.jsonl").write_text(json.dumps({"id": "a", "text": "some text"}))
    docs, first, second = (str(tmp_path / name) for name in ("docs.jsonl", "first", "second"))
    assert main(["build", docs, first, "--language", "german"]) == 0
    assert main(["build", docs, second, "--like", first]) == 0
    assert manifest(second).settings == manifest(first).settings
    assert manifest(second).settings.language == "german"
    assert main(["build", docs, str(tmp_path / "third"), "--like", first, "--language", "none"]) == 1
    assert "language" in capsys.readouterr().err
