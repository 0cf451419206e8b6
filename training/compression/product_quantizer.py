"""Product quantization as differentiable tensors: trained by OPQ, and stored in a checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.formats.vectors.quantizer import Quantizer, open_quantizer, write_quantizer

__all__ = [
    "ProductQuantizer",
    "read_checkpoint_quantizer",
    "squared_distances",
    "train_opq",
    "write_checkpoint_quantizer",
]

_VALUES_AT_ONCE = 1 << 24  # of the table of distances


@dataclass(frozen=True, eq=False)
class ProductQuantizer:
    """Codes vectors by the numbers of their nearest codewords (Jégou et al. 2011; Eq. 1-5 of Zhan et al. 2022).

    Attributes:
        rotation: (dim, input_dim) float32 that all vectors take first, queries too; or None.
        encode_codebook: (M, K, dim / M) float32, the codewords that decide the codes.
        score_codebook: the same shape, the codewords of codes in scores. RepCONC and DPQ train one
            codebook, which is both; JPQ trains the one for scores, while the codes stay unchanged.
    """

    rotation: torch.Tensor | None
    encode_codebook: torch.Tensor
    score_codebook: torch.Tensor

    @staticmethod
    def from_arrays(quantizer: Quantizer, device: torch.device | str = "cpu") -> ProductQuantizer:
        """Make one of stored arrays; its two codebooks are one tensor if they are one array."""
        encode = torch.tensor(quantizer.encode_codebook, device=device)
        is_one = quantizer.score_codebook is quantizer.encode_codebook
        score = encode if is_one else torch.tensor(quantizer.score_codebook, device=device)
        rotation = None if quantizer.rotation is None else torch.tensor(quantizer.rotation, device=device)
        return ProductQuantizer(rotation, encode, score)

    def to_arrays(self) -> Quantizer:
        """The quantizer as stored: one inverted list, and no residuals."""
        encode = _array(self.encode_codebook)
        score = encode if self.score_codebook is self.encode_codebook else _array(self.score_codebook)
        n_sub, _, dsub = encode.shape
        rotation = None if self.rotation is None else _array(self.rotation)
        return Quantizer(np.zeros((1, n_sub * dsub), np.float32), encode, score, rotation, by_residual=False)

    def rotate(self, values: torch.Tensor) -> torch.Tensor:
        """Rotate (n, input_dim) vectors to (n, dim)."""
        return values if self.rotation is None else values @ self.rotation.to(values.dtype).T

    def nearest(self, rotated: torch.Tensor) -> torch.Tensor:
        """The nearest codeword of each part of (n, dim) rotated vectors (Eq. 3): (n, M) int64, no gradient."""
        n_sub, n_words, _ = self.encode_codebook.shape
        parts = rotated.detach().split(max(1, _VALUES_AT_ONCE // (n_sub * n_words)))
        return torch.cat([squared_distances(part, self.encode_codebook.detach()).argmin(2).T for part in parts])

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Decode (n, M) codes for scores (Eq. 5): (n, dim), differentiable by the codebook."""
        book = self.score_codebook
        parts = book[torch.arange(len(book), device=codes.device), codes]
        return parts.flatten(1)


def squared_distances(rotated: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
    """Squared distances of the parts of (n, dim) vectors to (M, K, dim / M) codewords: (M, n, K)."""
    n_sub, _, dsub = codebook.shape
    parts = rotated.unflatten(1, (n_sub, dsub)).transpose(0, 1)
    lengths = parts.square().sum(2)[:, :, None] + codebook.square().sum(2)[:, None, :]
    return (lengths - 2 * parts @ codebook.transpose(1, 2).to(parts.dtype)).clamp(min=0)


def _array(values: torch.Tensor) -> np.ndarray:
    array: np.ndarray = values.detach().cpu().float().numpy().copy()
    return array


def write_checkpoint_quantizer(folder: Path, quantizer: Quantizer) -> str:
    """Write a quantizer into the folder of a checkpoint and return its name, that of its content."""
    return write_quantizer(Directory(folder), quantizer).name


def read_checkpoint_quantizer(folder: Path) -> Quantizer | None:
    """Read the quantizer that a checkpoint was trained with, None if it names none.

    Raises:
        CorruptFile: quarry.json or the quantizer cannot be read.
        FormatError: the quantizer is damaged.
    """
    path = folder / "quarry.json"
    if not path.is_file():
        return None
    try:
        name = json.loads(path.read_text("utf-8")).get("quantizer")
    except (ValueError, AttributeError) as error:
        raise CorruptFile(f"the settings of the checkpoint cannot be read: {error}", path=path) from error
    if name is None:
        return None
    if not isinstance(name, str):
        raise CorruptFile("bad 'quantizer'", path=path, expected="the name of a file", actual=repr(name))
    return open_quantizer(Directory(folder), name).quantizer


_ROTATIONS = 20  # that OPQ fits in turn with codebooks
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
        seed: the seed of the random rotation and of the first codewords.

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
