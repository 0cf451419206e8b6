"""Scores of an export are compared with those of the exact graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import (
    reranker_weights,
    write_reranker_checkpoint,
)

from quarry.engine.search.reranker import open_reranker
from quarry.exporters.export import export_reranker
from quarry.exporters.parity.reranker import LEAST_CORRELATIONS, check_reranker_parity, measure_reranker_parity
from quarry.formats.bundle.reranker import RerankerParity
from quarry.formats.errors import InvalidSetting

PAIRS = [("cat", "the cat sat."), ("cat", "a dog"), ("abc?", "abc def ghi jkl mno pqr stu vwx yz"), ("z", "ddd")]


def test_scores_that_are_too_far_from_fp32_fail(tmp_path: Path) -> None:
    weights = reranker_weights()
    for layer in range(2):  # an unused activation that dominates the scale of int8
        name = f"bert.encoder.layer.{layer}"
        weights[f"{name}.intermediate.dense.bias"][0] = 1e4
        weights[f"{name}.output.dense.weight"] *= 5
        weights[f"{name}.output.dense.weight"][:, 0] = 0
    folder = write_reranker_checkpoint(tmp_path / "cross", weights=weights)
    with pytest.raises(InvalidSetting, match=r"differs too much from fp32, most .* in the score of '.*' with '"):
        export_reranker(folder, tmp_path / "out", pairs=PAIRS)
    assert not (tmp_path / "out").exists()


def test_reranker_parity_is_measured_as_documented(cross_encoder: Path, tmp_path: Path) -> None:
    reranker = open_reranker(export_reranker(cross_encoder, tmp_path / "out", "fp32").path)
    assert measure_reranker_parity(reranker, reranker, PAIRS)[0] == RerankerParity(4, 0.0, 0.0, 1.0, 1.0)
    one, other = ListedScores([1.0, 2.0, 2.0, 4.0]), ListedScores([1.5, 2.0, 3.0, 9.0])
    record, worst = measure_reranker_parity(one, other, PAIRS)
    assert worst == PAIRS[3]
    assert (record.difference_mean, record.difference_max) == (1.625, 5.0)
    assert record.correlation == pytest.approx(np.corrcoef([1, 2, 2, 4], [1.5, 2, 3, 9])[0, 1], abs=1e-5)
    assert record.rank_correlation == pytest.approx(np.corrcoef([0, 1.5, 1.5, 3], [0, 1, 2, 3])[0, 1], abs=1e-5)


class ListedScores:
    """Returns the listed scores of the texts of `PAIRS`."""

    name = "listed"

    def __init__(self, scores: list[float]) -> None:
        self._scores = dict(zip(PAIRS, scores, strict=True))

    def scores(self, query: str, texts: list[str]) -> np.ndarray:
        return np.array([self._scores[query, text] for text in texts], np.float32)


@pytest.mark.parametrize("pairs", [[], PAIRS[:1], [PAIRS[0], PAIRS[0]]])
def test_reranker_parity_needs_pairs_that_differ(cross_encoder: Path, tmp_path: Path, pairs: list) -> None:
    with pytest.raises(InvalidSetting, match="pairs with different scores"):
        export_reranker(cross_encoder, tmp_path / "out", pairs=pairs)


@pytest.mark.parametrize("value", [float("nan"), 0.97])
def test_reranker_parity_that_is_no_number_fails(value: float) -> None:
    with pytest.raises(InvalidSetting, match=r"at least 0\.98"):
        check_reranker_parity(RerankerParity(2, 0.1, 0.2, value, 1.0), ("query", "text"), "int8")


@pytest.mark.parametrize(("precision", "least"), [*LEAST_CORRELATIONS.items(), ("int7", 0.98)])
def test_every_precision_of_a_reranker_has_its_tolerance(precision: str, least: float) -> None:
    check_reranker_parity(RerankerParity(2, 0.1, 0.2, least, 1.0), ("query", "text"), precision)
    with pytest.raises(InvalidSetting, match="differs too much"):
        check_reranker_parity(RerankerParity(2, 0.1, 0.2, least - 1e-5, 1.0), ("query", "text"), precision)
