"""Queries on a device: rounded for a fast scan with a known error, and in full for final scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quarry.engine.scoring.int8_query import BASE
from quarry.engine.scoring.query_vectors import LARGEST

__all__ = ["ExactQueries", "ScanQueries", "usable_queries"]

_HALF_EPSILON = 2.0**-11
_LOST_IN_HALF_SUMS = 8  # half epsilons: the result is rounded to half, and partial sums may be
_FLOAT_EPSILON = 2.0**-23  # of a sum of products on matrix units, which cut off instead of rounding
_FLOAT_ROUNDING = 1e-6  # of the few operations after the product


def usable_queries(queries: torch.Tensor) -> torch.Tensor:
    """Return which of (n, dim) float32 queries are valid, as `check_vectors` decides: (n,) bool.

    Those that cannot harm no other, so that the answer may be read when everything is done.
    """
    return (queries.abs() <= LARGEST).all(dim=1)


@dataclass(frozen=True, eq=False)
class ScanQueries:
    """Queries of length 1, for ranking; everything is on the device.

    Attributes:
        units: (n, dim) float16 or float32; the zero vector stays zero.
        norms: (n,) float64: a score of a unit times this is the query's.
        betas: (n,) float32: inverse temperatures for the scores of the units; None: the maximum.
        slack: (n,) float64: how far a unit's score of a centroid of length 1 may be off.
    """

    units: torch.Tensor
    norms: torch.Tensor
    betas: torch.Tensor | None
    slack: torch.Tensor

    def __len__(self) -> int:
        return len(self.units)

    @classmethod
    def of(cls, queries: torch.Tensor, beta: float | None, kind: torch.dtype, wide_sums: bool) -> ScanQueries:
        """Bring queries to length 1.

        Args:
            queries: (n, dim) float32, all finite.
            beta: inverse temperature of the softmax aggregation, or None.
            kind: what they are multiplied in, float16 or float32.
            wide_sums: whether products are summed up, and given, in float32 though the factors are float16.
        """
        whole = queries.double()
        norms = torch.linalg.vector_norm(whole, dim=1)
        whole = whole / norms.masked_fill(norms == 0, 1)[:, None]
        rounded = whole.to(kind)
        slack = torch.linalg.vector_norm(whole - rounded.double(), dim=1)
        slack = slack + (queries.shape[1] * _FLOAT_EPSILON + _FLOAT_ROUNDING)
        if kind == torch.float16 and not wide_sums:
            slack = slack + _LOST_IN_HALF_SUMS * _HALF_EPSILON
        return cls(rounded, norms, None if beta is None else (beta * norms).float(), slack)


@dataclass(frozen=True, eq=False)
class ExactQueries:
    """Queries in full precision, for final scores.

    Attributes:
        values: (n, dim) float64.
        scales: (n,) float64: a product with `values` times this is the score.
    """

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, queries: torch.Tensor, for_integers: bool) -> ExactQueries:
        """Make (n, dim) float32 `queries`, all finite, wide.

        Args:
            queries: see above.
            for_integers: for int8 centroids: rounded as `quarry.engine.scoring.int8_query` reads them, digit by
                digit, so that scores are those of the CPU.
        """
        wide = queries.double()
        if not for_integers:
            return cls(wide, torch.ones(len(wide), dtype=torch.float64, device=wide.device))
        scales = wide.abs().amax(dim=1) / 127
        scales = scales.masked_fill_(scales == 0, 1)
        rest = wide / scales[:, None]
        values, unit = torch.zeros_like(rest), 1.0
        for _ in range(3):
            digits = rest.round()
            values += digits / unit
            rest = (rest - digits) * BASE
            unit *= BASE
        return cls(values, scales)
