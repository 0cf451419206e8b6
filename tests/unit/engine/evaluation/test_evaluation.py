"""Evaluation and tuning of indexes whose best weight is known."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidQuery, InvalidSetting, ReadOnlyIndex
from quarry.engine.cli.commands import main
from quarry.engine.evaluation.evaluation import count_missing, evaluate, measure_ndcg
from quarry.engine.evaluation.judgments import JudgedQueries
from quarry.engine.evaluation.tuning import MIN_QUERIES, tune
from quarry.engine.options import DEFAULT_DENSE_WEIGHT

N = 52
MODES = ("hybrid", "dense", "lexical")


class MisleadingEncoder(WordEncoder):
    """Encodes queries as random vectors, so that only terms indicate relevance."""

    def encode_query(self, text):
        return WordEncoder(dim=self.dim).vector(text[::-1])


ENCODER = MisleadingEncoder(dim=16)


@pytest.fixture(params=[None, 2], ids=["whole", "sharded"])
def index(request, tmp_path):
    path = tmp_path / "index"
    generator = random.Random(0)
    words = [f"w{number}" for number in range(40)]
    docs = [{"id": f"d{n}", "text": " ".join([f"name{n}", *generator.choices(words, k=8)])} for n in range(N)]
    engine.build(docs, path, encoder=ENCODER, shards=request.param)
    with Engine.open(path, encoder=ENCODER, writable=True) as opened:
        yield opened


WHOLE = pytest.mark.parametrize("index", [None], ids=["whole"], indirect=True)


@pytest.fixture
def queries():
    generator = random.Random(1)
    texts = tuple(f"name{n} w{generator.randrange(40)} w{generator.randrange(40)}" for n in range(N))
    return JudgedQueries(texts, tuple({f"d{n}": 1} for n in range(N)), 0)


def test_what_is_measured_are_the_rankings_of_searches(index, queries):
    found = evaluate(index, queries, MODES, k=20)
    assert set(found) == set(MODES)
    for mode, quality in found.items():
        hits = index.search(queries.texts, 20, mode=mode)
        ndcg = [
            measure_ndcg([hit.id for hit in each], judged, 10)
            for each, judged in zip(hits, queries.judged, strict=True)
        ]
        assert quality.ndcg_10.mean == pytest.approx(np.mean(ndcg))
        assert quality.ndcg_10.low <= quality.ndcg_10.mean <= quality.ndcg_10.high
        ranks = [
            [hit.id for hit in each].index(f"d{n}") if f"d{n}" in {h.id for h in each} else 99
            for n, each in enumerate(hits)
        ]
        assert quality.rr_10.mean == pytest.approx(np.mean([1 / (rank + 1) if rank < 10 else 0 for rank in ranks]))
        assert quality.recall.mean == pytest.approx(np.mean([rank < 20 for rank in ranks]))
    assert found["lexical"].rr_10.low > found["dense"].rr_10.high  # query vectors are random
    assert found["lexical"].recall.mean == 1
    for wrong in ({"k": 0}, {"seed": -1}):
        with pytest.raises(InvalidSetting):
            evaluate(index, queries, MODES, **wrong)


@WHOLE
def test_a_weight_is_chosen_and_stored_and_used(index, queries):
    tuned = tune(index, queries)
    assert (tuned.before, tuned.n_queries) == (DEFAULT_DENSE_WEIGHT, N)
    assert tuned.dense_weight < 0.4
    assert tuned.is_better
    assert tuned.gain.mean > 0.05
    assert index.stats()["dense_weight"] == DEFAULT_DENSE_WEIGHT
    before = index.search(queries.texts[0], mode="hybrid")
    index.set_dense_weight(tuned.dense_weight)
    assert index.stats()["dense_weight"] == tuned.dense_weight
    assert_equal(index.search(queries.texts[0]), index.search(queries.texts[0], dense_weight=tuned.dense_weight))
    assert_equal(index.search(queries.texts[0], dense_weight=DEFAULT_DENSE_WEIGHT), before)
    again = tune(index, queries)
    assert again.gain.mean <= 0.05
    assert again.dense_weight == tuned.dense_weight


def assert_equal(some, others):
    assert [(hit.id, hit.score) for hit in some] == [(hit.id, hit.score) for hit in others]


def test_the_weight_stays_through_commits_and_merges_and_can_be_removed(index, tmp_path):
    path = tmp_path / "index"
    index.set_dense_weight(0.25)
    index.add([{"id": "new", "text": "w1"}])
    index.commit()
    index.merge()
    index.verify()
    with Engine.open(path, encoder=ENCODER) as reader:
        assert reader.stats()["dense_weight"] == 0.25
        with pytest.raises(ReadOnlyIndex):
            reader.set_dense_weight(0.5)
    index.set_dense_weight(None)
    with Engine.open(path, encoder=ENCODER) as reader:
        assert reader.stats()["dense_weight"] == DEFAULT_DENSE_WEIGHT
    assert len(index) == N + 1


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "0.5", True, float("nan")])
def test_wrong_weights(index, wrong):
    with pytest.raises(InvalidSetting):
        index.set_dense_weight(wrong)


def test_changes_must_be_committed_before(index):
    index.add([{"id": "new", "text": "w1"}])
    with pytest.raises(InvalidSetting, match="not committed"):
        index.set_dense_weight(0.5)
    index.commit()
    assert "new" in index


def test_too_few_queries_are_refused(index, queries):
    few = JudgedQueries(queries.texts[: MIN_QUERIES - 1], queries.judged[: MIN_QUERIES - 1], 0)
    with pytest.raises(InvalidSetting, match="too few judged queries"):
        tune(index, few)


def test_judgments_of_other_documents_are_refused(index, queries):
    others = JudgedQueries(queries.texts, tuple({f"docs.csv#d{n}": 1, f"d{n}": 0} for n in range(N)), 0)
    problem = r"the index has none of the relevant documents; expected ids.*such as 'd\d+'; found 'docs.csv#d0'"
    for call in (lambda: evaluate(index, others, MODES), lambda: tune(index, others)):
        with pytest.raises(InvalidQuery, match=problem):
            call()
    some = JudgedQueries(queries.texts, (*others.judged[:5], *queries.judged[5:]), 0)
    assert count_missing(index, some) == 5
    assert count_missing(index, queries) == 0
    assert evaluate(index, some, ["lexical"])["lexical"].recall.mean == pytest.approx((N - 5) / N)


@WHOLE
def test_the_command_line(index, queries, tmp_path, capsys):
    path = tmp_path / "with the default encoder"
    engine.build([{"id": each.id, "text": each.text} for each in index.documents()], path)
    lines = [json.dumps({"_id": f"q{n}", "text": text}) for n, text in enumerate(queries.texts)]
    (tmp_path / "queries.jsonl").write_text("\n".join(lines))
    (tmp_path / "qrels.tsv").write_text("\n".join(f"q{n}\td{n}\t1" for n in range(N)))
    given = [str(path), "--queries", str(tmp_path / "queries.jsonl"), "--qrels", str(tmp_path / "qrels.tsv")]
    assert main(["eval", *given, "-k", "20"]) == 0
    assert "recall@20" in capsys.readouterr().out
    assert main(["eval", *given, "--mode", "lexical", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n_queries"], found["n_relevant_missing"], list(found["modes"])) == (N, 0, ["lexical"])
    assert found["modes"]["lexical"]["ndcg_10"]["mean"] > 0.9
    (tmp_path / "qrels.tsv").write_text("\n".join([f"q{n}\td{n}\t1" for n in range(N)] + ["q0\tnobody\t1"]))
    assert main(["eval", *given, "--mode", "lexical"]) == 0
    assert "1 relevant documents are not in the index; they count as not found" in capsys.readouterr().out
    assert main(["tune", *given, "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    with Engine.open(path) as reader:
        assert reader.stats()["dense_weight"] == tuned["dense_weight" if tuned["is_stored"] else "before"]
    assert main(["tune", *given, "--dry-run"]) == 0
    assert "not stored" in capsys.readouterr().out
    assert main(["eval", str(path), "--queries", str(tmp_path / "no"), "--qrels", str(tmp_path / "no")]) == 1
