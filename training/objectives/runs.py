"""Means of groups of token vectors, differentiable."""

from __future__ import annotations

import torch

from quarry.training.model.tokens import TokenBatch

__all__ = ["group_means", "text_tokens"]


def text_tokens(hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
    """The vectors of the texts' own tokens, text after text: (n_tokens, dim); special tokens left out."""
    low = tokens.n_before
    parts = [states[low : low + len(text.ids)] for states, text in zip(hidden, tokens.texts, strict=True)]
    return torch.cat(parts)


def group_means(values: torch.Tensor, groups: torch.Tensor, n_groups: int) -> torch.Tensor:
    """The mean of each group's rows.

    Args:
        values: (n_rows, dim) float32.
        groups: (n_rows,) int64 below n_groups; every group has a row.
        n_groups: how many there are.

    Returns:
        (n_groups, dim) float32.
    """
    sums = values.new_zeros((n_groups, values.shape[1])).index_add(0, groups, values)
    counts = torch.bincount(groups, minlength=n_groups)
    return sums / counts[:, None].to(values.dtype)
