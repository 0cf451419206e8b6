"""RepCONC and DPQ: discrete representations by constrained clustering, and the baseline without."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.compression.compressed import CodedDocumentsObjective
from quarry.training.compression.product_quantizer import ProductQuantizer, squared_distances
from quarry.training.objectives.ranking import RankingObjective

__all__ = ["Constraint", "Dpq", "RepConc", "assign_balanced_codes", "transport_plan"]


@dataclass(frozen=True)
class Constraint:
    """Parameters of solving the uniformity constraint.

    Attributes:
        epsilon: regularization of Sinkhorn's algorithm, above 0; see `assign_balanced_codes`.
        n_iterations: the number of its iterations, 1 at least.
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


_LEAST_SPREAD = 1e-5  # of distances, so that equal ones are not divided by 0


def assign_balanced_codes(distances: torch.Tensor, epsilon: float, n_iterations: int) -> torch.Tensor:
    """Assign the vectors of a batch uniformly to codewords (Zhan et al. 2022, Eq. 17 and 19).

    For each sub-quantizer the transport problem of Eq. 19 is solved by Sinkhorn's algorithm, and each vector takes
    the codeword with the largest share of it (Eq. 17). Distances are first brought to -1 to 1 over the batch, for
    each sub-quantizer, because `epsilon` has a meaning only relative to their range; the paper does not say so,
    its authors' later code does it.

    Args:
        distances: (M, n_vectors, K), squared, without gradient.
        epsilon: regularization, above 0; the larger, the further from the nearest codewords.
        n_iterations: the number of iterations of Sinkhorn's algorithm.

    Returns:
        (n_vectors, M) int64.
    """
    low, high = distances.amin((1, 2), keepdim=True), distances.amax((1, 2), keepdim=True)
    scaled = 2 * (distances - low) / (high - low).clamp(min=_LEAST_SPREAD) - 1
    return transport_plan(scaled, epsilon, n_iterations).argmax(2).T


def transport_plan(costs: torch.Tensor, epsilon: float, n_iterations: int) -> torch.Tensor:
    """Shares of n vectors in K codewords at nearly the least cost, each vector 1/n and each codeword 1/K in all.

    Sinkhorn's algorithm (Cuturi 2013, Algorithm 1): exp(-cost / epsilon) is scaled so that codewords, then vectors
    have their shares; the last scaling is that of the vectors. Costs are reduced by the least of each vector, then
    of each codeword, which changes nothing of the result: every row and column keeps a 1, so that neither
    overflows. Computed in float64.

    Args:
        costs: (M, n, K); M problems at once.
        epsilon: regularization, above 0.
        n_iterations: 1 at least.

    Returns:
        (M, n, K) float64.
    """
    reduced = costs.double() - costs.double().amin(2, keepdim=True)
    reduced = reduced - reduced.amin(1, keepdim=True)
    kernel = torch.exp(-reduced / epsilon)
    n_vectors, n_words = costs.shape[1:]
    of_vectors = kernel.new_full((len(kernel), n_vectors, 1), 1 / n_vectors)
    tiny = torch.finfo(torch.float64).tiny
    for _ in range(n_iterations):
        of_words = 1 / (n_words * (kernel.transpose(1, 2) @ of_vectors).clamp(min=tiny))
        of_vectors = 1 / (n_vectors * (kernel @ of_words).clamp(min=tiny))
    return of_vectors * kernel * of_words.transpose(1, 2)
