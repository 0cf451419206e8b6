"""Queries on a device: rounded for a fast scan with a known error, and in full precision for final scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quarry.engine.scoring.query_vectors import MAX_MAGNITUDE
from quarry.engine.scoring.stored_vectors import BASE

__all__ = ["ExactQueries", "ScanQueries", "usable_queries"]

_FLOAT16_EPSILON = 2.0**-11
_FLOAT16_SUM_ERRORS = 8  # in units of the float16 epsilon: the result is rounded, and partial sums may be
_FLOAT_EPSILON = 2.0**-23  # of a sum of products on tensor cores, which truncate
_FLOAT_ROUNDING = 1e-6  # of the few operations after the product


def usable_queries(queries: torch.Tensor) -> torch.Tensor:
    """Return which of (n, dim) float32 queries are valid, as `check_vectors` decides: (n,) bool.

    Invalid queries do not affect the others, so the result can be read together with the answer.
    """
    return (queries.abs() <= MAX_MAGNITUDE).all(dim=1)


@dataclass(frozen=True, eq=False)
class ScanQueries:
    """Unit queries for ranking, on the device.

    Attributes:
        units: (n, dim) float16 or float32; the zero vector stays zero.
        norms: (n,) float64, not 0: factor from the score of a unit query to the score of the query.
        betas: (n,) float32: inverse temperatures for the scores of unit queries; None: the maximum.
        slack: (n,) float64: maximum error of the score of a unit query and a centroid of length 1.
    """

    units: torch.Tensor
    norms: torch.Tensor
    betas: torch.Tensor | None
    slack: torch.Tensor

    def __len__(self) -> int:
        return len(self.units)

    @classmethod
    def of(cls, queries: torch.Tensor, beta: float | None, kind: torch.dtype, wide_sums: bool) -> ScanQueries:
        """Scale queries to length 1.

        Args:
            queries: (n, dim) float32, all finite.
            beta: inverse temperature of the softmax aggregation, or None.
            kind: dtype of the queries in products, float16 or float32.
            wide_sums: whether products are summed in float32 although the factors are float16.
        """
        whole = queries.double()
        norms = torch.linalg.vector_norm(whole, dim=1)
        norms = norms.masked_fill(norms == 0, 1)
        whole = whole / norms[:, None]
        rounded = whole.to(kind)
        slack = torch.linalg.vector_norm(whole - rounded.double(), dim=1)
        slack = slack + (queries.shape[1] * _FLOAT_EPSILON + _FLOAT_ROUNDING)
        if kind == torch.float16 and not wide_sums:
            slack = slack + _FLOAT16_SUM_ERRORS * _FLOAT16_EPSILON
        return cls(rounded, norms, None if beta is None else (beta * norms).float(), slack)


@dataclass(frozen=True, eq=False)
class ExactQueries:
    """Queries in full precision, for final scores.

    Attributes:
        values: (n, dim) float64.
        scales: (n,) float64: factor from a product with `values` to the score.
    """

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, queries: torch.Tensor, for_int8: bool) -> ExactQueries:
        """Convert queries to float64.

        Args:
            queries: (n, dim) float32, all finite.
            for_int8: whether to round them as `quarry.engine.scoring.stored_vectors` does, digit by digit, so that
                scores of int8 centroids equal those of the CPU.
        """
        wide = queries.double()
        if not for_int8:
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
