"""Proximity of a query's terms, against a slow computation of its definition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from quarry.engine.lexical.proximity import Proximity

WINDOW = 30


def slow_score(query, weights, text):
    """Compute the score from all windows of a text."""
    known = {term for term in query if term in weights}
    in_query = set(pairwise(query))
    in_text = {pair for pair in pairwise(text) if known.issuperset(pair)}
    weight = {pair: sum(weights.get(term, 0) for term in pair) for pair in in_query}
    pairs = sum(weight[pair] for pair in in_query & in_text) / sum(weight.values())
    windows = [set(text[first : first + WINDOW]) & known for first in range(len(text))]
    window = max((sum(weights[term] for term in each) for each in windows), default=0)
    return (pairs + 2 * window / sum(weights[term] for term in known)) / 3


def test_by_hand():
    proximity = Proximity(["closed", "port", "error"], {"closed": 1.0, "port": 2.0, "error": 5.0})
    assert proximity.score(["closed", "port", "error"]) == 1.0
    assert proximity.score(["port", "closed"]) == pytest.approx(
        (0 + 2 * 3 / 8) / 3
    )  # the pair is in the other order
    assert proximity.score(["an", "port", "error"]) == pytest.approx((7 / 10 + 2 * 7 / 8) / 3)
    far = ["closed", *["word"] * (WINDOW - 1), "port", *["word"] * (WINDOW - 2), "error"]
    assert proximity.score(far) == pytest.approx((0 + 2 * 7 / 8) / 3)
    assert proximity.score(["word"]) == proximity.score([]) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    words = [f"t{number}" for number in range(40)]
    weights = {word: float(rng.uniform(0.1, 9)) for word in words[: rng.integers(4, 20)]}
    for _ in range(20):
        query = rng.choice(words[:20], rng.integers(2, 12)).tolist()
        proximity = Proximity(query, weights)
        if not proximity.is_defined:
            continue
        for length in (0, 1, 5, WINDOW, 200):
            text = rng.choice(words, length).tolist()
            score = proximity.score(text)
            assert score == pytest.approx(slow_score(query, weights, text), abs=1e-12)
            assert 0 <= score <= 1


@pytest.mark.parametrize("query", [[], ["port"], ["port", "port"], ["port", "unknown"]])
def test_one_known_term_has_no_proximity(query):
    assert not Proximity(query, {"port": 1.0}).is_defined
