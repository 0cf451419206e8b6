"""Aggregation of centroid scores to document scores, on a device."""

from __future__ import annotations

import torch

__all__ = ["aggregate_rows"]


def aggregate_rows(scores: torch.Tensor, offsets: torch.Tensor, betas: torch.Tensor | None) -> torch.Tensor:
    """Aggregate for several queries at once, as `quarry.engine.scoring.aggregation.aggregate` does for one.

    Args:
        scores: (n_rows, n_queries) float32, finite.
        offsets: (n_docs + 1,) int64, ascending from 0 to n_rows; a document without rows gets an undefined score.
        betas: (n_queries,) float32, the inverse temperature of each query's softmax (Tang et al. 2021, Eq. 4-6),
            or None for the maximum (Eq. 7).

    Returns:
        (n_docs, n_queries) float32.
    """
    best = _reduce_segments("max", scores, offsets)
    if betas is None:
        return best
    owners = torch.repeat_interleave(torch.diff(offsets), output_size=len(scores))
    below = best[owners] - scores
    weights = torch.exp(below * -betas)
    losses = _reduce_segments("sum", weights * below, offsets)
    return best - losses / _reduce_segments("sum", weights, offsets)


def _reduce_segments(how: str, values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Reduce each segment of rows to one row, in a fixed order, so that repeated runs agree to the last bit."""
    return torch.segment_reduce(values, how, offsets=offsets, axis=0, unsafe=True)
