"""Product quantization as differentiable tensors, and the quantizer of a checkpoint as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile
from quarry.formats.vectors.quantizer import Quantizer, open_quantizer, write_quantizer

__all__ = ["ProductQuantizer", "read_checkpoint_quantizer", "squared_distances", "write_checkpoint_quantizer"]

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
    found: np.ndarray = values.detach().cpu().float().numpy().copy()
    return found


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
