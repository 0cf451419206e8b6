"""One score for each document out of the scores of its centroids, on a device."""

from __future__ import annotations

import torch

__all__ = ["aggregate_rows"]


def aggregate_rows(scores: torch.Tensor, offsets: torch.Tensor, betas: torch.Tensor | None) -> torch.Tensor:
    """The device's counterpart of `quarry.engine.scoring.aggregation.aggregate`, for several queries at once.

    Args:
        scores: (n_rows, n_queries) float32, finite.
        offsets: (n_docs + 1,) int64, ascending from 0 to n_rows; scores of documents without rows mean nothing.
        betas: (n_queries,) float32, the inverse temperature of each query's softmax (Tang et al. 2021, Eq. 4-6),
            or None for the maximum (Eq. 7).

    Returns:
        (n_docs, n_queries) float32.
    """
    best = _reduced("max", scores, offsets)
    if betas is None:
        return best
    owners = torch.repeat_interleave(torch.diff(offsets), output_size=len(scores))
    below = best[owners] - scores
    weights = torch.exp(below * -betas)
    return best - _reduced("sum", weights * below, offsets) / _reduced("sum", weights, offsets)


def _reduced(how: str, values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Each segment of rows reduced to one; in a fixed order, so that repeated runs agree to the last bit."""
    return torch.segment_reduce(values, how, offsets=offsets, axis=0, unsafe=True)
