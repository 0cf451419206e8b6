"""Kernels that compute something else than torch are found out before they are used."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="backend gpu needs torch")

from engine.gpu.aggregation import aggregate_rows  # noqa: E402
from engine.gpu.kernel_check import kernels_agree  # noqa: E402

PLACE = torch.device("cpu")


def document_scores(*arguments):
    values, scales, starts, docs, _, _, queries, betas, scores, first_doc = arguments
    products = (values.float() @ queries.float().T) * scales[:, None]
    scores[docs.long() - first_doc] = aggregate_rows(products, starts, betas)[docs.long()]


def row_products(values, rows, queries, numbers):
    return torch.stack([values[row].double() @ queries[number] for row, number in zip(rows, numbers, strict=True)])


def score_lists(codes, owners, starts, longest, tables, probed, lists, best):
    """One look-up at a time."""
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


RIGHT = {"document_scores": document_scores, "row_products": row_products, "score_lists": score_lists}


def test_kernels_that_compute_the_same_are_used():
    assert kernels_agree(SimpleNamespace(**RIGHT), PLACE)


def without_softmax(*arguments):
    document_scores(*arguments[:7], None, *arguments[8:])


def one_dimension_short(values, rows, queries, numbers):
    return row_products(values[:, :-1], rows, queries[:, :-1], numbers)


def without_the_last_row(codes, owners, starts, longest, tables, probed, lists, best):
    score_lists(codes, owners, torch.cat([starts[:-1], starts[-1:] - 1]), longest, tables, probed, lists, best)


def halves_swapped(codes, *rest):
    score_lists((codes << 4) | (codes >> 4), *rest)


@pytest.mark.parametrize(
    "wrong",
    [
        {"document_scores": without_softmax},
        {"row_products": one_dimension_short},
        {"score_lists": without_the_last_row},
        {"score_lists": halves_swapped},
    ],
)
def test_kernels_that_compute_something_else_are_not(wrong, caplog):
    with caplog.at_level(logging.WARNING):
        assert not kernels_agree(SimpleNamespace(**(RIGHT | wrong)), PLACE)
    assert next(iter(wrong)) in caplog.text


def test_kernels_that_fail_are_not_used(caplog):
    def failing(*arguments):
        raise RuntimeError("no such instruction")

    with caplog.at_level(logging.WARNING):
        assert not kernels_agree(SimpleNamespace(**(RIGHT | {"row_products": failing})), PLACE)
    assert "no such instruction" in caplog.text
