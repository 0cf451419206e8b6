"""Aggregation of centroid scores to document scores, on a device."""

from __future__ import annotations

import torch

__all__ = ["aggregate_rows"]


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
    best = _reduce_segments("max", scores, offsets)
    if betas is not None:
        best = best - _softmax_gaps(scores, best, offsets, betas)
    if mean_share:
        means = _reduce_segments("sum", scores.double(), offsets) / torch.diff(offsets)[:, None]
        best = best - mean_share * (best - means).clamp_(min=0).float()
    return best


def _softmax_gaps(
    scores: torch.Tensor, best: torch.Tensor, offsets: torch.Tensor, betas: torch.Tensor
) -> torch.Tensor:
    """Return the difference between the maximum of each document's scores and its softmax score."""
    owners = torch.repeat_interleave(torch.diff(offsets), output_size=len(scores))
    below = best[owners] - scores
    weights = torch.exp(below * -betas)
    losses = _reduce_segments("sum", weights * below, offsets)
    return losses / _reduce_segments("sum", weights, offsets)


def _reduce_segments(how: str, values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Reduce each segment of rows to one row, in a fixed order, so that repeated runs agree to the last bit."""
    return torch.segment_reduce(values, how, offsets=offsets, axis=0, unsafe=True)
