"""Aggregation of centroid scores to document scores, on a device."""

from __future__ import annotations

import logging
from functools import cache

import torch

__all__ = ["aggregate_rows", "has_segments", "reduce_segments"]

_log = logging.getLogger(__name__)


def aggregate_rows(
    scores: torch.Tensor, offsets: torch.Tensor, betas: torch.Tensor | None, mean_share: float = 0.0
) -> torch.Tensor:
    """Aggregate for several queries at once, as `quarry.engine.scoring.aggregation.aggregate` does for one.

    Args:
        scores: (n_rows, n_queries) float32, finite.
        offsets: (n_docs + 1,) int64, ascending from 0 to n_rows; a document without rows gets an undefined score.
        betas: (n_queries,) float32, the inverse temperature of each query's softmax (Tang et al. 2021, Eq. 4-6),
            or None for the maximum (Eq. 7).
        mean_share: share of the mean of a document's scores, at least 0 and below 1.

    Returns:
        (n_docs, n_queries) float32.
    """
    best = reduce_segments("max", scores, offsets)
    if betas is not None:
        best = best - _softmax_gaps(scores, best, offsets, betas)
    if mean_share:
        means = reduce_segments("sum", scores.double(), offsets) / torch.diff(offsets)[:, None]
        best = best - mean_share * (best - means).clamp_(min=0).float()
    return best


def _softmax_gaps(
    scores: torch.Tensor, best: torch.Tensor, offsets: torch.Tensor, betas: torch.Tensor
) -> torch.Tensor:
    """Return the difference between the maximum of each document's scores and its softmax score."""
    owners = torch.repeat_interleave(torch.diff(offsets), output_size=len(scores))
    below = best[owners] - scores
    weights = torch.exp(below * -betas)
    losses = reduce_segments("sum", weights * below, offsets)
    return losses / reduce_segments("sum", weights, offsets)


def reduce_segments(how: str, values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Reduce each segment of rows to one row, in a fixed order, so that repeated runs agree to the last bit.

    On a device where torch cannot do that, sums are float64 in any order, and then rounded.

    Args:
        how: "max" or "sum".
        values: (n_rows, n) floats.
        offsets: (n_segments + 1,) int64, ascending from 0 to n_rows.

    Returns:
        (n_segments, n), of the dtype of the values; the maximum of no rows is undefined.
    """
    if has_segments(values.device):
        return torch.segment_reduce(values, how, offsets=offsets, axis=0, unsafe=True)
    return _scatter_segments(how, values, offsets)


def _scatter_segments(how: str, values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    owners = torch.repeat_interleave(torch.diff(offsets), output_size=len(values))
    shape = (len(offsets) - 1, *values.shape[1:])
    if how == "max":
        cells = owners[:, None].expand_as(values)
        return values.new_full(shape, -torch.inf).scatter_reduce_(0, cells, values, "amax")
    return values.new_zeros(shape, dtype=torch.float64).index_add_(0, owners, values.double()).to(values.dtype)


@cache
def has_segments(place: torch.device) -> bool:
    """Return whether torch reduces segments on a device, as it does on the CPU; log a warning if not."""
    offsets, values = torch.tensor([0, 1, 4, 4, 9]), torch.arange(18.0).reshape(9, 2).sin()
    try:
        for how in ("max", "sum"):
            for kind in (torch.float32, torch.float64):
                given = values.to(place, kind), how
                means = torch.segment_reduce(*given, offsets=offsets.to(place), axis=0, unsafe=True)
                expected = _scatter_segments(how, values.to(kind), offsets)
                torch.testing.assert_close(means.cpu()[[0, 1, 3]], expected[[0, 1, 3]])
    except (RuntimeError, AssertionError) as error:
        _log.warning("torch cannot reduce segments on %s, which takes longer without: %s", place, error)
        return False
    return True
