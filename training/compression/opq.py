"""The quantizer that training starts from: optimized product quantization."""

from __future__ import annotations

import numpy as np
import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.compression.product_quantizer import ProductQuantizer

__all__ = ["train_opq"]

_ROTATIONS = 20
_ITERATIONS = 10  # of k-means, before and after the rotations are fitted


def train_opq(values: torch.Tensor, n_sub: int, n_words: int, dim: int, seed: int) -> ProductQuantizer:
    """Fit a rotation and a codebook to vectors: OPQ, non-parametric (Ge et al. 2013, Algorithm 1).

    It starts from the first `dim` principal axes, not centered, turned at random; with dim below the vectors' own,
    what lies outside them is left out, because codes of less than a bit a number lose more of it than it is worth.
    Then it alternates between one round of k-means in all sub-spaces and the rotation that brings the vectors
    nearest to their decoded codes (orthogonal Procrustes).

    Args:
        values: (n, input_dim) float32.
        n_sub: M, the number of sub-quantizers; it divides dim.
        n_words: K, codewords of each; at most n.
        dim: after the rotation, 1 to input_dim.
        seed: of the random rotation and of the first codewords.

    Returns:
        The quantizer; both its codebooks are one tensor.

    Raises:
        InvalidSetting: the sizes do not fit.
    """
    n, input_dim = values.shape
    if not (1 <= dim <= input_dim and dim % n_sub == 0):
        raise InvalidSetting(
            "the dimension of the codes does not fit",
            expected=f"a multiple of {n_sub} up to {input_dim}",
            actual=dim,
        )
    if n < n_words:
        raise InvalidSetting("too few vectors to train codewords on", expected=f"{n_words} or more", actual=n)
    rng = np.random.default_rng(seed)
    axes = _principal_axes(values)[:dim]
    projected = values @ axes.T
    turn = torch.from_numpy(np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)).to(values.device)
    chosen = torch.from_numpy(np.sort(rng.choice(n, n_words, replace=False))).to(values.device)
    rotated = projected @ turn.T
    book = rotated[chosen].unflatten(1, (n_sub, dim // n_sub)).transpose(0, 1).contiguous()
    for _ in range(_ITERATIONS):
        book, _ = _lloyd(rotated, book)
    for _ in range(_ROTATIONS):
        book, decoded = _lloyd(rotated, book)
        left, _, right = torch.linalg.svd((decoded.T @ projected).double())
        turn = (left @ right).to(values.dtype)
        rotated = projected @ turn.T
    for _ in range(_ITERATIONS):
        book, _ = _lloyd(rotated, book)
    return ProductQuantizer(turn @ axes, book, book)


def _principal_axes(values: torch.Tensor) -> torch.Tensor:
    """(input_dim, input_dim) orthonormal rows; vectors are longest along the first."""
    moments = (values.T @ values).double()
    return torch.linalg.eigh(moments)[1].flip(1).T.to(values.dtype)


def _lloyd(rotated: torch.Tensor, book: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One round of k-means in every sub-space; a codeword without vectors stays.

    Returns:
        The new codebook, and the codes (of the old one) decoded with it: (n, dim).
    """
    n_sub, n_words, dsub = book.shape
    codes = ProductQuantizer(None, book, book).nearest(rotated)
    numbers = (codes + n_words * torch.arange(n_sub, device=codes.device)).flatten()
    sums = book.new_zeros((n_sub * n_words, dsub)).index_add(0, numbers, rotated.reshape(-1, dsub))
    counts = torch.bincount(numbers, minlength=n_sub * n_words)[:, None]
    means = torch.where(counts > 0, sums / counts.clamp(min=1), book.flatten(0, 1)).reshape(book.shape)
    return means, ProductQuantizer(None, means, means).decode(codes)
