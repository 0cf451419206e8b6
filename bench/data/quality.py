"""Computes quality measures with ir-measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ir_measures
from ir_measures import RR, R, nDCG

__all__ = ["Quality", "measure_quality"]


@dataclass(frozen=True)
class Quality:
    """Means over the queries that have judgments.

    Attributes:
        ndcg_10: nDCG@10 with linear gain: a document's gain is its judged score, as in trec_eval.
        ndcg_exp_10: nDCG@10 with gain 2^score - 1. Where every score is 0 or 1 it is the same number.
        recall_100: R@100, the share of the documents of score 1 and above that is among the first 100.
        rr_10: RR@10, one over the rank of the first of them, 0 if it is not among the first 10.
    """

    ndcg_10: float
    ndcg_exp_10: float
    recall_100: float
    rr_10: float


def measure_quality(qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> Quality:
    """Judge a run.

    Args:
        qrels: for each query id the judged documents' ids and scores (whole numbers; unlisted ones count 0).
        run: for each query id the documents found and their scores, larger is better; for a query of
            ``qrels`` that is missing here nothing was found. Equal scores are ranked by document id,
            descending for nDCG and R (trec_eval's rule).

    Raises:
        ValueError: there are no judgments, so there is nothing to average.
    """
    if not qrels:
        raise ValueError("no judgments to judge the run by")
    scores = {score for judged in qrels.values() for score in judged.values() if score > 0}
    exponential = nDCG(gains={score: 2**score - 1 for score in sorted(scores)}) @ 10
    found = ir_measures.calc_aggregate([nDCG @ 10, R @ 100, RR @ 10], qrels, run)
    # A separate call: in one call with the others ir-measures 0.4.3 may give both kinds of nDCG the same gains.
    found |= ir_measures.calc_aggregate([exponential], qrels, run)
    return Quality(found[nDCG @ 10], found[exponential], found[R @ 100], found[RR @ 10])
