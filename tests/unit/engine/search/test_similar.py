"""Search for documents similar to a given one."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.sharded import ENCODER, columns
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidFilter, InvalidQuery, InvalidSetting
from quarry.engine.thresholds import Thresholds

SUBJECTS = {
    "sea": "ship sail wave tide harbor",
    "bread": "flour yeast oven dough crust",
    "chess": "king queen rook mate",
}
DOCS = [
    {"id": f"{name} {n}", "text": f"{words} the number{n}", "metadata": {"n": n, "id": "sea 0"}}
    for name, words in SUBJECTS.items()
    for n in range(6)
]
MODES = ("hybrid", "dense", "lexical")


@pytest.fixture(scope="module", params=[None, 2], ids=["whole", "sharded"])
def path(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("similar") / "index"
    engine.build(DOCS, path, encoder=ENCODER, shards=request.param)
    return path


@pytest.fixture(scope="module")
def index(path):
    with Engine.open(path, encoder=ENCODER, writable=True) as opened:
        yield opened


@pytest.mark.parametrize("mode", MODES)
def test_documents_of_the_same_subject_are_found_without_the_document_itself(index, mode):
    for name in SUBJECTS:
        hits = index.search(like=f"{name} 0", k=5, mode=mode)
        assert {hit.id for hit in hits} == {f"{name} {n}" for n in range(1, 6)}
        assert hits.exactness == "exact"


def test_all_others_are_found(index):
    """All others are found although their metadata has the id at the path ``id``."""
    assert len(index.search(like="sea 0", k=100, mode="dense")) == len(DOCS) - 1
    assert next(hit.id for hit in index.search(like="sea 0", k=100, mode="dense", filter={"n": 3})) == "sea 3"
    assert index.search(like="sea 0", filter={"n": 100}) == []


def test_the_vector_is_the_mean_of_the_stored_ones(index):
    vector = ENCODER.encode_query(DOCS[0]["text"])[None]
    expected = index.search_vectors(vector, k=6)[0]
    found = index.search(like="sea 0", k=5, mode="dense")
    assert expected[0].id == "sea 0"
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected[1:]], abs=0.02)


def test_pages(index):
    whole = index.search(like="bread 1", k=12)
    assert columns(index.search(like="bread 1", k=5, offset=7)) == columns(whole)[7:]


def test_another_encoder_is_no_hindrance(index, path):
    with Engine.open(path, backend="exact") as reader:
        assert len(reader.search(like="sea 0", k=5)) == 5


@pytest.mark.parametrize("mode", MODES)
def test_codes_alone(tmp_path, mode):
    engine.build(
        DOCS,
        tmp_path / "index",
        encoder=WordEncoder(dim=16),
        centroids="none",
        code_bytes=4,
        thresholds=Thresholds(calibration_queries=64, list_rows=10, training_rows=10),
    )
    with Engine.open(tmp_path / "index", encoder=WordEncoder(dim=16)) as opened:
        hits = opened.search(like="sea 0", k=3, mode=mode)
        assert len(hits) == 3
        assert "sea 0" not in {hit.id for hit in hits}
        assert np.isfinite([hit.score for hit in hits]).all()


def test_what_is_not_valid(index):
    for wrong in ("nothing", ""):
        with pytest.raises(InvalidQuery, match="not in the index"):
            index.search(like=wrong)
    with pytest.raises(InvalidQuery, match="either queries or like"):
        index.search("text", like="sea 0")
    with pytest.raises(InvalidQuery, match="nothing to search for"):
        index.search()
    for options in ({"like": 5}, {"like": "sea 0", "rerank": 20}):
        with pytest.raises(InvalidSetting):
            index.search(**options)
    with pytest.raises(InvalidSetting):
        index.search_vectors([[1.0] * ENCODER.dim], like="sea 0")
    with pytest.raises(InvalidFilter):
        index.search(like="sea 0", filter={"n": "text"})


def test_a_deleted_document_is_no_query(index):
    index.delete("chess 5")
    index.commit()
    with pytest.raises(InvalidQuery):
        index.search(like="chess 5")
