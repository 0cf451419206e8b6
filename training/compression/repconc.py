"""RepCONC and DPQ: discrete representations by constrained clustering, and the baseline without."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.compression.compressed import CodedDocumentsObjective
from quarry.training.compression.product_quantizer import ProductQuantizer, squared_distances
from quarry.training.compression.sinkhorn import assign_balanced_codes
from quarry.training.objectives.ranking import RankingObjective

__all__ = ["Constraint", "Dpq", "RepConc"]


@dataclass(frozen=True)
class Constraint:
    """Parameters of solving the uniformity constraint.

    Attributes:
        epsilon: regularization of Sinkhorn's algorithm, above 0; see `assign_balanced_codes`.
        n_iterations: of it, 1 at least.
    """

    epsilon: float = 0.003
    n_iterations: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 1e6 or self.n_iterations < 1:
            raise InvalidSetting(
                "the constraint is out of range", expected="epsilon above 0, one iteration at least", actual=self
            )


class RepConc(CodedDocumentsObjective):
    """Encoders and codebook trained together (Zhan et al. 2022, "Learning Discrete Representations via Constrained
    Clustering for Effective and Efficient Dense Retrieval", section 3.2 to 3.4).

    The loss is Eq. 8. The gradient of the coded rows reaches both the rows before coding (straight-through, Eq. 9)
    and the codewords that they were coded by (Eq. 10); that of the quantization error both, too. In training all
    rows of a batch are assigned uniformly to codewords (Eq. 17 and 19); without a constraint each is assigned to
    its nearest (Eq. 3), the ablation "+ Clustering" of Table 2. In an index and in validation rows always take
    their nearest codewords (section 3.6.3). A batch should have many more rows than there are codewords.

    Args:
        ranking: makes rows and ranking losses.
        quantizer: to start from; OPQ in the paper (section 3.6.1). Its rotation stays unchanged.
        codebook_rate: the codebook's learning rate as a multiple of the encoder's; 40 in the paper.
        error_weight: lambda of Eq. 8; 0.05 in the paper for 24 to 48 bytes, up to 0.3 for 4.
        constraint: None: nearest codewords.
    """  # noqa: D205

    def __init__(
        self,
        ranking: RankingObjective,
        quantizer: ProductQuantizer,
        codebook_rate: float,
        error_weight: float,
        constraint: Constraint | None,
    ) -> None:
        super().__init__(ranking, quantizer, codebook_rate, error_weight)
        self._constraint = constraint

    def assign(self, rotated: torch.Tensor) -> torch.Tensor:
        """Under the constraint, or nearest; see `CodedDocumentsObjective.assign`."""
        if self._constraint is None:
            return self.quantizer.nearest(rotated)
        distances = squared_distances(rotated.detach(), self.quantizer.encode_codebook.detach())
        return assign_balanced_codes(distances, self._constraint.epsilon, self._constraint.n_iterations)

    def pass_through(self, rotated: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
        """To rows and codewords (Eq. 9 and 10); see `CodedDocumentsObjective.pass_through`."""
        return decoded + (rotated - rotated.detach())

    def error(self, rotated: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
        """Eq. 7, which moves rows and codewords; see `CodedDocumentsObjective.error`."""
        return (rotated - decoded).square().sum(1).mean()


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
