import numpy as np
import pytest
from support.bench.quality import measure_quality

pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("ir_measures", reason="the reference needs ir-measures")

from quarry.training.loop.validation import ndcg_10


def test_ndcg_is_that_of_bench_with_ties_grades_and_missing_queries() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        qrels = {
            f"q{query}": {
                f"d{doc}": int(rng.integers(-1, 4)) for doc in rng.choice(40, rng.integers(1, 15), replace=False)
            }
            for query in range(4)
        }
        run = {
            f"q{query}": {
                f"d{doc}": float(rng.integers(0, 6)) for doc in rng.choice(40, rng.integers(1, 25), replace=False)
            }
            for query in range(3)
        }
        assert ndcg_10(qrels, run) == pytest.approx(measure_quality(qrels, run).ndcg_10, abs=1e-9)
