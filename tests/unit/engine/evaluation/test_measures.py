"""Measures and confidence intervals are compared with ir-measures and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quarry.engine.evaluation.evaluation import (
    mean_interval,
    measure_ndcg,
    measure_recall,
    measure_reciprocal_rank,
)

IDS = [f"d{number}" for number in range(20)]
judgments = st.dictionaries(st.sampled_from(IDS), st.integers(-1, 3), min_size=1, max_size=12)
rankings = st.lists(st.sampled_from(IDS), unique=True, max_size=20)


@settings(deadline=None, max_examples=60)
@given(rankings, judgments, st.integers(1, 20))
def test_measures_are_those_of_trec_eval(ranking, judged, k):
    ir_measures = pytest.importorskip("ir_measures")
    run = {"q": {doc_id: float(-place) for place, doc_id in enumerate(ranking)}}
    wanted = [ir_measures.nDCG @ k, ir_measures.R @ k, ir_measures.RR @ k]
    found = ir_measures.calc_aggregate(wanted, {"q": judged}, run) if ranking else dict.fromkeys(wanted, 0.0)
    assert measure_ndcg(ranking, judged, k) == pytest.approx(found[wanted[0]], abs=1e-9)
    assert measure_recall(ranking, judged, k) == pytest.approx(found[wanted[1]], abs=1e-9)
    assert measure_reciprocal_rank(ranking, judged, k) == pytest.approx(found[wanted[2]], abs=1e-9)


def test_an_interval_covers_the_mean_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(30):
        interval = mean_interval(generator.random(40).tolist())
        assert interval.low <= interval.mean <= interval.high
        covered += interval.low <= 0.5 <= interval.high
    assert 25 <= covered <= 30


def test_an_interval_depends_on_the_seed_alone():
    values = np.random.default_rng(1).random(30).tolist()
    assert mean_interval(values, 3) == mean_interval(values, 3)
    assert mean_interval(values, 3) != mean_interval(values, 4)
    assert mean_interval([0.25]) == mean_interval([0.25] * 9)
