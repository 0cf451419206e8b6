"""One vector for a text out of its token vectors."""

from __future__ import annotations

import torch

__all__ = ["POOLINGS", "pool"]

POOLINGS = ("mean", "cls")


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Pool texts: the mean over all tokens, special ones included, or the vector of the first ([CLS]).

    Args:
        hidden: (n_texts, longest, dim) float32.
        mask: (n_texts, longest) int64, 0 for padding.
        pooling: one of `POOLINGS`.

    Returns:
        (n_texts, dim) float32.
    """
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)
