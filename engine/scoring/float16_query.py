"""A float query rounded to float16, so that SIMD ranks float16 centroids without converting them.

How far off its scores can be is known (`rounding`). That holds where the library sums in float32; with the
instructions for float16 of newer processors (AVX512-FP16, SVE) it sums in float16, whose error no bound makes
useful, so there centroids are converted and multiplied by BLAS.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from quarry.engine.scoring.simd import simsimd

__all__ = ["HalfQuery", "sums_are_float32"]

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]

_UNIT = 2.0**-24  # of float32: half the distance from 1 to the next number
_FEW_SUMS = 8  # roundings besides those of the products: of the scale, of the result
_UNDERFLOW = (
    2.0**-150 / 2.0**-24
)  # what a float32 product can lose to underflow, by the norm of the smallest float16 row
_PROBE_DIM = 1021  # odd, so that what is left over at the end of a vector is tried too
_PROBE_ERROR = 1e-5


class HalfQuery:
    """One query, ready to be multiplied with float16 rows.

    Args:
        query: (dim,) float32.

    Attributes:
        rounding: a rough score is within `rounding` times the centroid's norm of the score that stage 2 computes.
            It is the norm of what float16 leaves out of the query, and for each of the two sums of dim products
            in float32 their number times the unit roundoff times the query's norm (Higham 2002, equation 3.5),
            and the most that their products can lose to underflow (ibid., equation 2.8).
    """

    def __init__(self, query: Floats) -> None:
        self._scale = float(np.abs(query).max(initial=0.0)) or 1.0
        self._query = query
        self._half = (query / np.float64(self._scale)).astype(np.float16)
        rest = query - self._half.astype(np.float64) * self._scale
        sums = 2 * (len(query) + _FEW_SUMS) * _UNIT * float(np.linalg.norm(query.astype(np.float64)))
        self.rounding = float(np.linalg.norm(rest)) + sums + (len(query) + _FEW_SUMS) * _UNDERFLOW

    def rough_scores(self, rows: Halves) -> Floats:
        """Scores of (n, dim) float16 rows: (n,) float32."""
        if not sums_are_float32():
            return rows.astype(np.float32) @ self._query
        products = np.asarray(simsimd().cdist(rows, self._half[None], "dot")).reshape(len(rows))
        scaled: Floats = (products * self._scale).astype(np.float32)
        return scaled


@cache
def sums_are_float32() -> bool:
    """Whether the library sums products of float16 numbers in float32: seen by what it makes of such a sum."""
    ones = np.full((1, _PROBE_DIM), 1 + 2.0**-10, np.float16)
    ones[0, ::7] = 2.0**-24  # the smallest that float16 has
    exact = float((ones.astype(np.float64) ** 2).sum())
    found = float(np.asarray(simsimd().cdist(ones, ones, "dot")).item())
    return abs(found - exact) <= _PROBE_ERROR * exact
