import numpy as np
import pytest

from quarry.engine.scoring.ranking import find_nth_largest

GENERATOR = np.random.default_rng(0)
ARRAYS = {
    "distinct": GENERATOR.standard_normal(1000),
    "few values": GENERATOR.integers(-2, 3, 1000),
    "mostly zeros": np.where(GENERATOR.random(1000) < 0.02, GENERATOR.random(1000), 0),
    "mostly the largest": np.where(GENERATOR.random(1000) < 0.98, 2, GENERATOR.random(1000)),
    "not allowed": np.where(GENERATOR.random(1000) < 0.5, -np.inf, GENERATOR.random(1000)),
    "equal": np.ones(1000),
    "one": np.array([3.5]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_nth_largest_is_that_of_a_sort(name):
    scores = ARRAYS[name].astype(np.float32)
    descending = np.sort(scores)[::-1].tolist()
    for n in (1, 2, 10, 300, 999, 1000):
        if n <= len(scores):
            assert find_nth_largest(scores, n) == descending[n - 1]
