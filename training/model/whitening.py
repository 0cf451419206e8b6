"""A projection after training that makes the dimensions of an encoder's vectors more alike in variance."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quarry.formats.errors import InvalidSetting

__all__ = ["whitening"]


def whitening(vectors: Sequence[torch.Tensor], weights: Sequence[float], shrinkage: float) -> torch.Tensor:
    """Compute the linear map that whitens vectors of several sources, in part.

    Vectors of texts vary much in a few directions, which then decide cosines. The map is (C + shrinkage c I)^-0.5
    with the covariance C and the mean c of its eigenvalues (whitening of sentence vectors: Su et al. 2021; of all
    such maps the symmetric one changes vectors least: Kessy et al. 2018). The larger the shrinkage (Ledoit and
    Wolf 2004), the nearer it is to a multiple of the identity. C is the mean of the sources' covariances, each
    about the mean of its source and divided by its trace: how far apart the sources are does not count.

    Args:
        vectors: of each source: (n, dim) float32, n above 1.
        weights: of each source, above 0.
        shrinkage: above 0.

    Returns:
        (dim, dim) float32, symmetric, scaled so that the squares of its elements have the sum dim.

    Raises:
        InvalidSetting: vectors of a source are all alike, or not finite, or there are fewer than two.
    """
    total = torch.zeros(vectors[0].shape[1], vectors[0].shape[1], dtype=torch.float64)
    for each, weight in zip(vectors, weights, strict=True):
        centered = each.double() - each.double().mean(0)
        covariance = centered.T @ centered
        trace = float(covariance.trace())
        if not 0 < trace < float("inf"):
            raise InvalidSetting(
                "vectors cannot be whitened",
                expected="two or more documents that differ",
                actual=tuple(each.shape),
            )
        total += weight * covariance / trace
    values, axes = torch.linalg.eigh(total / sum(weights))
    found = (axes * (values.clamp(min=0) + shrinkage * values.mean()) ** -0.5) @ axes.T
    return (found * (len(found) / (found**2).sum()).sqrt()).float()
