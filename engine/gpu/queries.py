"""Queries on a device: rounded for a fast scan with a known error, and in full for final scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.integer_query import digit_sums

__all__ = ["ExactQueries", "ScanQueries"]

_HALF_EPSILON = 2.0**-11
_LOST_IN_HALF_SUMS = 8  # half epsilons: the result is rounded to half, and partial sums may be
_FLOAT_EPSILON = 2.0**-23  # of a sum of products on matrix units, which cut off instead of rounding
_FLOAT_ROUNDING = 1e-6  # of the few operations after the product
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ScanQueries:
    """Queries of length 1, for ranking.

    Attributes:
        units: (n, dim) on the device, float16 or float32; the zero vector stays zero.
        norms: (n,) float64 on the host: a score of a unit times this is the query's.
        betas: (n,) float32 on the device: inverse temperatures for the scores of the units; None: the maximum.
        slack: (n,) float64 on the host: how far a unit's score of a centroid of length 1 may be off.
    """

    units: torch.Tensor
    norms: npt.NDArray[np.float64]
    betas: torch.Tensor | None
    slack: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.units)

    @classmethod
    def of(
        cls, queries: Floats, beta: float | None, place: torch.device, kind: torch.dtype, wide_sums: bool
    ) -> ScanQueries:
        """Bring (n, dim) float32 `queries` to the device.

        Args:
            queries: all finite.
            beta: inverse temperature of the softmax aggregation, or None.
            place: the device.
            kind: what they are multiplied in, float16 or float32.
            wide_sums: whether products are summed up, and given, in float32 though the factors are float16.
        """
        whole = queries.astype(np.float64)
        norms = np.linalg.norm(whole, axis=1)
        whole /= np.where(norms > 0, norms, 1)[:, None]
        rounded = whole.astype(np.float16 if kind == torch.float16 else np.float32)
        lost = whole - rounded.astype(np.float64)
        slack = np.linalg.norm(lost, axis=1) + queries.shape[1] * _FLOAT_EPSILON + _FLOAT_ROUNDING
        if kind == torch.float16 and not wide_sums:
            slack += _LOST_IN_HALF_SUMS * _HALF_EPSILON
        betas = None if beta is None else torch.from_numpy((beta * norms).astype(np.float32)).to(place)
        return cls(torch.from_numpy(rounded).to(place), norms, betas, slack)


@dataclass(frozen=True, eq=False)
class ExactQueries:
    """Queries in full precision, for final scores.

    Attributes:
        values: (n, dim) float64 on the device.
        scales: (n,) float64 on the device: a product with `values` times this is the score.
    """

    values: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, queries: Floats, place: torch.device, for_integers: bool) -> ExactQueries:
        """Bring (n, dim) float32 `queries` to the device.

        Args:
            queries: all finite.
            place: the device.
            for_integers: for int8 centroids: as `engine.integer_query` reads them, digit by digit, so that scores
                are those of the CPU.
        """
        values, scales = (
            digit_sums(queries) if for_integers else (queries.astype(np.float64), np.ones(len(queries)))
        )
        return cls(torch.from_numpy(values).to(place), torch.from_numpy(scales).to(place))
