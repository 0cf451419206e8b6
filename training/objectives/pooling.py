"""Vectors of texts and of groups of tokens, out of token vectors; differentiable."""

from __future__ import annotations

import torch

from quarry.training.model.tokens import TokenBatch

__all__ = ["POOLINGS", "average_groups", "pool", "select_text_tokens"]

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


def select_text_tokens(hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
    """Return the vectors of the texts' own tokens, without special ones, text after text: (n_tokens, dim)."""
    low = tokens.n_before
    parts = [states[low : low + len(text.ids)] for states, text in zip(hidden, tokens.texts, strict=True)]
    return torch.cat(parts)


def average_groups(values: torch.Tensor, groups: torch.Tensor, n_groups: int) -> torch.Tensor:
    """Average the rows of each group.

    Args:
        values: (n_rows, dim) float32.
        groups: (n_rows,) int64 below n_groups; every group has a row.
        n_groups: number of groups.

    Returns:
        (n_groups, dim) float32.
    """
    sums = values.new_zeros((n_groups, values.shape[1])).index_add(0, groups, values)
    counts = torch.bincount(groups, minlength=n_groups)
    return sums / counts[:, None].to(values.dtype)
