"""Pages of a search are parts of one search with a large k."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries

from quarry import engine
from quarry.engine import Engine, InvalidSetting
from quarry.engine.options import MAX_K
from quarry.engine.thresholds import Thresholds

QUERIES = random_queries(6)
PAGES = [(0, 10), (10, 10), (20, 10), (3, 1), (0, 50), (25, 30), (290, 30), (400, 10), (100_000, 5)]


@pytest.fixture(scope="module", params=["whole", "sharded", "lists"])
def index(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("offset") / "index"
    with_lists = {
        "code_bytes": 4,
        "thresholds": Thresholds(calibration_queries=64, list_rows=50, training_rows=50),
    }
    more = {"shards": 3} if request.param == "sharded" else with_lists if request.param == "lists" else {}
    engine.build(random_documents(300), path, encoder=ENCODER, **more)
    backend = "cpu_faiss" if request.param == "lists" else "auto"
    with Engine.open(path, encoder=ENCODER, backend=backend) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("fusion", ["linear", "rrf"])
def test_pages_are_parts_of_one_search(index, mode, fusion):
    fixed = {"mode": mode, "fusion": fusion, "candidates": 1000, "nprobe": 1000}
    for query, only in itertools.product(QUERIES[:3], (None, {"number": 3})):
        whole = index.search(query, k=400, filter=only, **fixed)
        for offset, k in PAGES:
            if offset + k > 1000:
                continue
            page = index.search(query, k=k, offset=offset, filter=only, **fixed)
            assert columns(page) == columns(whole)[offset : offset + k]
            assert page.exactness == whole.exactness or len(whole) < 400


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_a_page_is_the_end_of_a_search_as_deep(index, mode):
    """With the default number of candidates, a page equals the end of a search with offset + k hits."""
    for query, (offset, k) in itertools.product(QUERIES, PAGES):
        whole = index.search(query, k=offset + k, mode=mode)
        page = index.search(query, k=k, offset=offset, mode=mode)
        assert columns(page) == columns(whole)[offset:]
        assert page.exactness == whole.exactness


def test_pages_agree_by_default_in_an_exact_index(tmp_path):
    engine.build(random_documents(300), tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for query, mode in itertools.product(QUERIES, ("hybrid", "dense", "lexical")):
            pages = [hit for offset in range(0, 100, 10) for hit in index.search(query, mode=mode, offset=offset)]
            assert columns(pages) == columns(index.search(query, k=100, mode=mode))


def test_several_queries_and_explanations(index):
    whole = index.search(QUERIES, k=12, explain=True)
    page = index.search(QUERIES, k=5, offset=7, explain=True)
    assert [[hit.to_dict() for hit in hits] for hits in page] == [
        [hit.to_dict() for hit in hits[7:]] for hits in whole
    ]


def test_vectors(index):
    queries = np.random.default_rng(0).standard_normal((2, ENCODER.dim)).astype(np.float32)
    whole = index.search_vectors(queries, k=20)
    assert [columns(hits) for hits in index.search_vectors(queries, k=8, offset=12)] == [
        columns(hits)[12:] for hits in whole
    ]


class Lengths:
    """A reranker that prefers long texts."""

    name = "lengths"

    def scores(self, query, texts):
        return np.array([len(text) for text in texts], np.float32)


def test_reranking_comes_before_the_offset(index, tmp_path):
    engine.build(random_documents(40), tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER, reranker=Lengths()) as reranked:
        whole = reranked.search(QUERIES[0], k=30, rerank=30)
        assert [hit.id for hit in reranked.search(QUERIES[0], k=10, offset=15, rerank=30)] == [
            hit.id for hit in whole[15:25]
        ]
        with pytest.raises(InvalidSetting, match="rerank is out of range"):
            reranked.search(QUERIES[0], k=10, offset=25, rerank=30)


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, None, MAX_K, 1 << 70])
def test_wrong_offsets(index, wrong):
    with pytest.raises(InvalidSetting, match="offset is out of range"):
        index.search(QUERIES[0], offset=wrong)
