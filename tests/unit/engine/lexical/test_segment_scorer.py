"""The best documents by MaxScore are those of exhaustive sums, however frequent the terms are."""

import numpy as np
import pytest

from quarry.engine.filtering.evaluation import Allowed
from quarry.engine.lexical.segment_scorer import SegmentScorer
from quarry.engine.lexical.term_scores import Costs, TermScores
from quarry.formats.postings.elias_fano import Postings

N_DOCS = 5000


def make_parts(generator, shares, is_short):
    """Return terms that so large shares of the documents have, rarest first; short texts have equal scores."""
    norms = np.full(N_DOCS, 1.2, np.float32) if is_short else generator.uniform(0.3, 3, N_DOCS).astype(np.float32)
    parts = []
    for share in sorted(shares):
        docs = np.flatnonzero(generator.random(N_DOCS) < share).astype(np.uint32)
        frequencies = generator.integers(1, 3 if is_short else 9, len(docs)).astype(np.uint32)
        idf = float(np.log1p((N_DOCS - len(docs) + 0.5) / (len(docs) + 0.5)))
        parts.append(TermScores.of(Postings(docs, frequencies), norms, idf))
    return parts


def add_up(parts, allowed):
    """Return the float32 sums of all documents, 0 for those that are not allowed."""
    totals = np.zeros(N_DOCS, np.float32)
    for part in parts:
        every = np.zeros(N_DOCS, np.float32)
        docs, scores = part.postings
        every[docs] = scores
        totals += every
    return totals if allowed is None else np.where(allowed.flags, totals, np.float32(0))


SHARES = [
    (0.001, 0.01, 0.5),
    (0.0004, 0.002, 0.05, 0.1, 0.4, 0.6),
    (0.3, 0.5, 0.7),
    (0.02, 0.03, 0.06, 0.07, 0.08, 0.09, 0.5, 0.55, 0.6),
    (0.0,),
    (0.9,),
]


@pytest.mark.parametrize("is_short", [True, False])
@pytest.mark.parametrize("many", [1, 8192])
@pytest.mark.parametrize("share", [None, 0.5, 0.02, 0.0])
@pytest.mark.parametrize("shares", SHARES)
def test_the_best_are_those_of_all_sums(shares, share, many, is_short):
    costs = Costs(many_candidates=many, large_segment=many)  # 1: every segment is large
    generator = np.random.default_rng(len(shares))
    parts, scorer = make_parts(generator, shares, is_short), SegmentScorer(N_DOCS, costs)
    allowed = None if share is None else Allowed(generator.random(N_DOCS) < share)
    expected = add_up(parts, allowed)
    for n in (1, 10, 300, N_DOCS):
        least = np.sort(expected)[-n]
        docs, scores = scorer.find_best(parts, n, allowed)
        order = np.argsort(docs)
        right = np.flatnonzero((expected >= least) & (expected > 0))
        assert docs[order].tolist() == right.tolist()
        assert scores[order].tobytes() == expected[right].tobytes()


def test_the_scores_of_rare_terms_and_of_all():
    generator = np.random.default_rng(1)
    for shares in SHARES:
        parts = make_parts(generator, shares, False)
        docs, scores = SegmentScorer(N_DOCS).scores(parts)
        expected = add_up(parts, None)
        assert docs.tolist() == np.flatnonzero(expected).tolist()
        assert scores.tobytes() == expected[docs].tobytes()


def test_a_frequent_term_is_only_looked_up():
    """With enough documents of a rare term, no array of all documents is made, nor are all postings added."""
    generator = np.random.default_rng(2)
    rare, frequent = make_parts(generator, (0.02, 0.6), True)

    class Frequent(TermScores):
        looked_up = 0

        def add_to(self, totals):
            raise AssertionError("its scores are added for all documents")

        def look_up(self, docs):
            Frequent.looked_up += len(docs)
            return super().look_up(docs)

    docs, _ = SegmentScorer(N_DOCS).find_best([rare, Frequent(*frequent)], 10)
    assert len(docs) >= 10
    assert 10 <= Frequent.looked_up <= rare.n_docs
