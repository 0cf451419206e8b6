"""Codes under the constraint that every codeword is used equally often."""

from __future__ import annotations

import torch

__all__ = ["assign_balanced_codes", "transport_plan"]

_LEAST_SPREAD = 1e-5


def assign_balanced_codes(distances: torch.Tensor, epsilon: float, n_iterations: int) -> torch.Tensor:
    """Assign the vectors of a batch uniformly to codewords (Zhan et al. 2022, Eq. 17 and 19).

    For each sub-quantizer the transport problem of Eq. 19 is solved by Sinkhorn's algorithm, and each vector takes
    the codeword with the largest share of it (Eq. 17). Distances are first brought to -1 to 1 over the batch, for
    each sub-quantizer, because `epsilon` has a meaning only relative to their range; the paper does not say so,
    its authors' later code does it.

    Args:
        distances: (M, n_vectors, K), squared, without gradient.
        epsilon: regularization, above 0; the larger, the further from the nearest codewords.
        n_iterations: of Sinkhorn's algorithm.

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
