"""Kernels whose results differ from torch's are rejected before they are used."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

from quarry.engine.gpu.aggregation import aggregate_rows  # noqa: E402
from quarry.engine.gpu.kernel_check import find_sound_kernels  # noqa: E402

PLACE = torch.device("cpu")


def document_scores(*arguments):
    values, scales, starts, docs, _, _, queries, betas, scores, first_doc = arguments
    products = values.float() @ queries.float().T
    if scales is not None:
        products *= scales[:, None]
    scores[docs.long() - first_doc] = aggregate_rows(products, starts, betas)[docs.long()]


def pair_scores(values, scales, starts, docs, queries, query_scales, beta):
    """Compute scores one document at a time."""
    found = torch.empty(docs.shape)
    for query, row in enumerate(docs.tolist()):
        for place, doc in enumerate(row):
            part = slice(int(starts[doc]), int(starts[doc + 1]))
            scores = (values[part].double() @ queries[query]) * scales[part].double() * query_scales[query]
            weights = (scores == scores.max()).double() if beta is None else torch.softmax(beta * scores, 0)
            found[query, place] = (weights * scores).sum() / weights.sum()
    return found


def score_lists(codes, owners, starts, longest, tables, probed, lists, best):
    """Compute scores one look-up at a time."""
    n_sub, ksub = tables.shape[1:]
    for query in range(len(tables)):
        for place, number in enumerate(probed[query].tolist()):
            for row in range(int(starts[number]), int(starts[number + 1])):
                code = codes[row].tolist()
                if ksub == 16:
                    code = [half for byte in code for half in (byte & 15, byte >> 4)]
                score = lists[query, place] + sum(tables[query, sub, code[sub]] for sub in range(n_sub))
                owner = int(owners[row])
                best[query, owner] = max(best[query, owner], score)


KERNELS = {
    "document_scores": document_scores,
    "pair_scores": pair_scores,
    "score_lists": score_lists,
}
RIGHT = {"TILE_ROWS": 128, **KERNELS}


def test_kernels_that_compute_the_same_are_used():
    assert vars(find_sound_kernels(SimpleNamespace(**RIGHT), PLACE)) == RIGHT


def without_softmax(*arguments):
    document_scores(*arguments[:7], None, *arguments[8:])


def wrong_where_there_are_many_queries(*arguments):
    document_scores(*arguments)
    arguments[-2][:, 100:] = 0


def one_dimension_short(values, scales, starts, docs, queries, *rest):
    return pair_scores(values[:, :-1], scales, starts, docs, queries[:, :-1], *rest)


def of_the_next_document(values, scales, starts, docs, *rest):
    return pair_scores(values, scales, starts, docs.roll(1, dims=1), *rest)


def without_aggregation(*arguments):
    return pair_scores(*arguments[:-1], None)


def without_the_last_row(codes, owners, starts, longest, tables, probed, lists, best):
    score_lists(codes, owners, torch.cat([starts[:-1], starts[-1:] - 1]), longest, tables, probed, lists, best)


def halves_swapped(codes, *rest):
    score_lists((codes << 4) | (codes >> 4), *rest)


@pytest.mark.parametrize(
    "wrong",
    [
        {"document_scores": without_softmax},
        {"document_scores": wrong_where_there_are_many_queries},
        {"pair_scores": one_dimension_short},
        {"pair_scores": of_the_next_document},
        {"pair_scores": without_aggregation},
        {"score_lists": without_the_last_row},
        {"score_lists": halves_swapped},
    ],
)
def test_kernels_that_compute_something_else_are_not(wrong, caplog):
    with caplog.at_level(logging.WARNING):
        found = find_sound_kernels(SimpleNamespace(**(RIGHT | wrong)), PLACE)
    assert vars(found) == RIGHT | dict.fromkeys(wrong)
    assert next(iter(wrong)) in caplog.text


def test_kernels_that_fail_are_not_used(caplog):
    def failing(*arguments):
        raise RuntimeError("no such instruction")

    with caplog.at_level(logging.WARNING):
        found = find_sound_kernels(SimpleNamespace(**(RIGHT | {"pair_scores": failing})), PLACE)
    assert vars(found) == RIGHT | {"pair_scores": None}
    assert "no such instruction" in caplog.text
    none = RIGHT | dict.fromkeys(KERNELS, failing)
    assert find_sound_kernels(SimpleNamespace(**none), PLACE) is None
