"""Hits as JSON, and as tables of pandas and Arrow."""

from __future__ import annotations

import json
import math
import sys
from copy import copy

import numpy as np
import pytest
from support.indexes.sharded import ENCODER

from quarry import engine
from quarry.engine import BackendUnavailable, Engine, Hits, InvalidSetting

METADATA = {"lang": "en", "nested": {"a": [1, None, 2.5, "é"]}, "big": (1 << 63) - 1}
COLUMNS = ["id", "score", "relevance", "title", "text", "metadata", "passage", "dense_score", "lexical_score"]


@pytest.fixture(scope="module", params=[None, 2], ids=["whole", "sharded"])
def index(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("hits") / "index"
    docs = [{"id": f"é{n}", "title": "T" * (n % 2), "text": f"word {n}", "metadata": METADATA} for n in range(4)]
    engine.build(docs, path, encoder=ENCODER, shards=request.param)
    with Engine.open(path, encoder=ENCODER) as opened:
        yield opened


def with_relevance(hit, relevance):
    changed = copy(hit)
    changed.relevance = relevance
    return changed


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_everything_is_json(index, mode):
    hits = index.search("word 2", mode=mode, explain=True)
    written = json.loads(json.dumps(hits.to_dict(), allow_nan=False))
    assert written["exactness"] == "exact"
    assert [hit["id"] for hit in written["hits"]] == [hit.id for hit in hits]
    assert written["hits"][0]["metadata"] == METADATA
    assert [json.loads(json.dumps(hit.to_dict())) for hit in hits] == written["hits"]


def test_scalars_of_numpy_become_numbers(index):
    found = index.search("word 2", k=1, explain=True)[0]
    odd = copy(found)
    odd.score, odd.dense_score, odd.relevance = np.float32(0.5), np.float32(2), np.float32(0.25)
    odd.terms = {"word": np.float32(1)}
    written = json.loads(json.dumps(Hits([odd]).to_dict()))["hits"][0]
    assert (written["score"], written["terms"], written["dense_score"]) == (0.5, {"word": 1.0}, 2.0)
    assert written["relevance"] == 0.25


def test_pandas(index):
    pytest.importorskip("pandas")
    hits = index.search("word 2", k=3)
    table = hits.to_pandas()
    assert list(table.columns) == COLUMNS
    assert table["id"].tolist() == [hit.id for hit in hits]
    assert table["metadata"].tolist() == [METADATA] * 3
    assert table["score"].tolist() == [hit.score for hit in hits]
    lexical = index.search("word", mode="lexical").to_pandas()
    assert all(map(math.isnan, lexical["dense_score"]))
    empty = index.search("unheard", mode="lexical").to_pandas()
    assert (len(empty), list(empty.columns), empty["score"].dtype) == (0, COLUMNS, np.float64)


def test_arrow(index):
    pytest.importorskip("pyarrow")
    hits = index.search("word 2", k=3)
    table = hits.to_arrow()
    assert table.column_names == COLUMNS
    assert table["id"].to_pylist() == [hit.id for hit in hits]
    assert [json.loads(each) for each in table["metadata"].to_pylist()] == [METADATA] * 3
    empty = index.search("unheard", mode="lexical").to_arrow()
    assert empty.num_rows == 0
    assert empty.schema.equals(table.schema)
    assert index.search("word", mode="lexical").to_arrow()["dense_score"].null_count == 4


def test_the_numbers_of_passages_are_columns(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    text = "\n\n".join(f"word {n} is here. " * 8 for n in range(4))
    engine.build([{"id": "a", "text": text}], tmp_path / "index", encoder=ENCODER, passage_words=40)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as cut:
        passages, documents = cut.search("word 2", unit="passage"), cut.search("word 2")
    numbers = [hit.passage for hit in passages]
    assert sorted(numbers) == [0, 1, 2, 3]
    table = passages.to_pandas()
    assert (table["passage"].tolist(), table["passage"].dtype) == (numbers, pandas.Int64Dtype())
    assert passages.to_arrow()["passage"].to_pylist() == numbers
    assert passages.to_arrow().schema.field("passage").type == pyarrow.int64()
    assert documents.to_pandas()["passage"].isna().all()
    assert documents.to_arrow()["passage"].to_pylist() == [None]


def test_relevance_in_tables(index):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = index.search("word 2", k=2)
    known = Hits([with_relevance(found[0], 0.75), with_relevance(found[1], None)])
    written = known.to_pandas()["relevance"]
    assert written.dtype == np.float64
    assert (written[0], math.isnan(written[1])) == (0.75, True)
    assert known.to_arrow()["relevance"].to_pylist() == [0.75, None]


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_a_missing_library_is_named(index, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    hits = index.search("word")
    with pytest.raises(BackendUnavailable, match=library):
        hits.to_pandas() if library == "pandas" else hits.to_arrow()


@pytest.mark.parametrize("relevance", ["x", True, [0.5], -0.1, 1.5, math.nan])
def test_a_relevance_that_is_no_number_is_refused(index, relevance):
    with pytest.raises(InvalidSetting, match="relevance is out of range"):
        index.search("word 2").at_least(relevance)


def test_relevance_of_numpy(index):
    found = index.search("word 2", k=2)
    known = Hits([with_relevance(found[0], 0.75), with_relevance(found[1], 0.25)])
    assert [hit.id for hit in known.at_least(np.float32(0.5))] == [found[0].id]
