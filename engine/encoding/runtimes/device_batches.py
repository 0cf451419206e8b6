"""Outputs of a model for batches of texts, restored to the order of the texts on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from quarry.engine.gpu.aggregation import reduce_segments
from quarry.engine.gpu.transfer import send
from quarry.formats.arrays import Int64Array

__all__ = ["Batch", "in_order", "mean_over_windows", "run_sums", "tokens_in_order"]

Batch = tuple[list[int], torch.Tensor]
"""The positions of some texts, and the model's (n, ...) float32 output for each of them."""

_LEAST_NORM = 1e-12  # so that a mean of zeros is not divided by 0


def in_order(batches: Iterable[Batch]) -> torch.Tensor:
    """Return (n_texts, dim) vectors in the order of the texts, n_texts at least 1."""
    members, parts = zip(*batches, strict=True)
    order = np.argsort(np.concatenate(members))
    return torch.cat(parts)[send(order, parts[0].device)]


def mean_over_windows(vectors: torch.Tensor, n_tokens: Sequence[Sequence[int]], normalize: bool) -> torch.Tensor:
    """Return for each text the mean of the vectors of its windows, weighted by their numbers of tokens.

    The vector of a text with one window is returned unchanged.

    Args:
        vectors: (n_windows, dim) float32, text after text.
        n_tokens: number of tokens of each window of each text; all at least 1.
        normalize: whether to scale a mean to length 1.

    Returns:
        (n_texts, dim) float32.
    """
    place = vectors.device
    counts = np.array([len(each) for each in n_tokens])
    weights = np.concatenate([np.divide(each, sum(each)) for each in n_tokens])
    means = run_sums(vectors.double() * send(weights, place)[:, None], counts)
    if normalize:
        norms = torch.linalg.vector_norm(means, dim=1, keepdim=True).clamp(min=_LEAST_NORM)
        means = torch.where(send(counts > 1, place)[:, None], means / norms, means)
    return means.float()


def run_sums(values: torch.Tensor, sizes: Int64Array) -> torch.Tensor:
    """Return the sums of consecutive runs of rows, (len(sizes), dim), added in a fixed order."""
    offsets = send(_offsets(sizes), values.device)
    return reduce_segments("sum", values, offsets)


def tokens_in_order(
    batches: Iterable[Batch], n_before: int, sizes: Int64Array, dim: int, place: torch.device
) -> torch.Tensor:
    """Extract the token vectors of texts from padded batches.

    Args:
        batches: (n, length, dim) each; consumed one after the other.
        n_before: number of special tokens before those of a text.
        sizes: (n_texts,) int64, tokens of each text, without special tokens.
        dim: length of a vector.
        place: the device.

    Returns:
        (sizes.sum(), dim) float32, text after text.
    """
    targets = _offsets(sizes)[:-1]
    tokens = torch.empty((int(sizes.sum()), dim), device=place)
    for members, values in batches:
        chosen = sizes[members]
        sources = np.arange(len(members)) * values.shape[1] + n_before
        rows = values.reshape(-1, dim)[send(_ranges(sources, chosen), place)]
        tokens.index_copy_(0, send(_ranges(targets[members], chosen), place), rows)
    return tokens


def _ranges(starts: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return start, start + 1, ..., start + size - 1 for each start and its size, concatenated."""
    ranges: Int64Array = np.repeat(starts - _offsets(sizes)[:-1], sizes) + np.arange(sizes.sum())
    return ranges


def _offsets(sizes: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(sizes)])
