"""Golden indexes of given vectors stay readable, with their metric, dense weight and answers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from golden.make import documents
from golden.make_metrics import DENSE_WEIGHT, DIM, FOLDER, METRICS, answers, make, query_vectors

from quarry.engine import Engine


@pytest.fixture(params=METRICS)
def metric(request):
    return request.param


def test_it_is_small(metric):
    assert sum(file.stat().st_size for file in (FOLDER / metric / "index").iterdir()) < 60_000


def test_answers_are_unchanged(metric):
    expected = json.loads((FOLDER / metric / "expected.json").read_text(encoding="utf-8"))
    found = answers(FOLDER / metric / "index")
    for then, now in zip(expected.pop("searches"), found.pop("searches"), strict=True):
        assert (now["query"], now["by"]) == (then["query"], then["by"])
        assert [name for name, _ in now["hits"]] == [name for name, _ in then["hits"]]
        assert [score for _, score in now["hits"]] == pytest.approx([score for _, score in then["hits"]], rel=1e-5)
    assert found == expected
    assert (found["metric"], found["dim"], found["dense_weight"]) == (metric, DIM, DENSE_WEIGHT)


def test_the_nearest_are_those_of_a_computation_in_float64(metric):
    rng = np.random.default_rng(0)
    vectors = {
        str(document["id"]): rng.integers(-9, 10, (1 + number % 4, DIM)).astype(np.float64)
        for number, document in enumerate(documents(24, 0))
    }
    del vectors[str(next(documents(1, 3))["id"])]

    def score(query, rows):
        if metric == "l2":
            return -np.linalg.norm(rows - query, axis=1).min()
        if metric == "cosine":
            return (rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)).max()
        return (rows @ query).max()

    with Engine.open(FOLDER / metric / "index") as index:
        for query in query_vectors():
            exact = sorted((score(query.astype(np.float64), rows) for rows in vectors.values()), reverse=True)
            found = [score(query.astype(np.float64), vectors[hit.id]) for hit in index.search(vector=query, k=5)]
            assert found == pytest.approx(exact[:5], rel=0.02)


def test_the_same_documents_make_the_same_answers_today(metric, tmp_path):
    make(tmp_path / "index", metric)
    now, then = answers(tmp_path / "index"), answers(FOLDER / metric / "index")
    assert json.dumps(now) == json.dumps(then)


def test_it_can_be_changed(metric, tmp_path):
    shutil.copytree(FOLDER / metric / "index", tmp_path / "index")
    query = query_vectors()[0]
    with Engine.open(tmp_path / "index", writable=True) as index:
        index.add([{"id": "later", "text": "", "vectors": 3 * query}])
        index.commit()
        assert index.search(vector=3 * query, k=1)[0].id == "later"
        assert index.verify().n_documents == len(index) == 24
