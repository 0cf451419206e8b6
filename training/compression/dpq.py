"""DPQ: differentiable product quantization, the baseline without clustering of the rows."""

from __future__ import annotations

import torch

from quarry.training.compression.compressed import CodedDocumentsObjective

__all__ = ["Dpq"]


class Dpq(CodedDocumentsObjective):
    """Encoders by the ranking loss, codebook by the quantization error (Chen, Li and Sun 2020, "Differentiable
    Product Quantization for End-to-End Embedding Compression", its variant by vector quantization, DPQ-VQ).

    Rows take their nearest codewords. The gradient of the coded rows reaches the rows before coding alone
    (straight-through), and that of the quantization error the codewords alone, which follow the rows like the
    centroids of a k-means over batches: as Zhan et al. 2022 describe it in section 5.3, "Ablation Study".
    """  # noqa: D205

    def assign(self, rotated: torch.Tensor) -> torch.Tensor:
        """Nearest; see `CodedDocumentsObjective.assign`."""
        return self.quantizer.nearest(rotated)

    def pass_through(self, rotated: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
        """To rows alone; see `CodedDocumentsObjective.pass_through`."""
        return rotated + (decoded - rotated).detach()

    def error(self, rotated: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
        """Moves codewords alone; see `CodedDocumentsObjective.error`."""
        return (rotated.detach() - decoded).square().sum(1).mean()
