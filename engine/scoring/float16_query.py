"""A query rounded to float16, so that SIMD instructions score float16 centroids without converting them.

Scores are approximate with a known error (`rounding`), if the library sums in float32. With the float16
instructions of newer processors (AVX512-FP16, SVE) it sums in float16, without a useful error bound; then
centroids are converted and multiplied by BLAS.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from quarry.engine.scoring.simd import simsimd
from quarry.formats.arrays import Float16Array, Float32Array

__all__ = ["Float16Query", "has_float32_sums"]


_UNIT = 2.0**-24  # unit roundoff of float32
_OTHER_ROUNDINGS = 8  # besides those of the products: of the scale, of the result
_UNDERFLOW = 2.0**-150 / 2.0**-24  # loss of a float32 product to underflow, for a row of the smallest float16 norm
_PROBE_DIM = 1021  # odd, so that the remainder loop at the end of a vector is tested too
_PROBE_ERROR = 1e-5


class Float16Query:
    """One query, prepared for products with float16 rows.

    Args:
        query: (dim,) float32.

    Attributes:
        rounding: maximum difference of an approximate score to the score of stage 2, for a centroid of norm 1: the
            norm of the query's rounding error; for both sums of dim products in float32 their number times the
            unit roundoff times the query's norm (Higham 2002, equation 3.5); and the most that their products lose
            to underflow (equation 2.8).
    """

    def __init__(self, query: Float32Array) -> None:
        self._scale = float(np.abs(query).max(initial=0.0)) or 1.0
        self._query = query
        self._rounded = (query / np.float64(self._scale)).astype(np.float16)
        error = query - self._rounded.astype(np.float64) * self._scale
        sums = 2 * (len(query) + _OTHER_ROUNDINGS) * _UNIT * float(np.linalg.norm(query.astype(np.float64)))
        self.rounding = float(np.linalg.norm(error)) + sums + (len(query) + _OTHER_ROUNDINGS) * _UNDERFLOW

    def approximate_scores(self, rows: Float16Array) -> Float32Array:
        """Return approximate scores of (n, dim) float16 rows: (n,) float32."""
        if not has_float32_sums():
            return rows.astype(np.float32) @ self._query
        products = np.asarray(simsimd().cdist(rows, self._rounded[None], "dot")).reshape(len(rows))
        scaled: Float32Array = (products * self._scale).astype(np.float32)
        return scaled


@cache
def has_float32_sums() -> bool:
    """Return whether the library sums products of float16 numbers in float32, by computing such a sum."""
    ones = np.full((1, _PROBE_DIM), 1 + 2.0**-10, np.float16)
    ones[0, ::7] = 2.0**-24  # the smallest float16 number
    exact = float((ones.astype(np.float64) ** 2).sum())
    found = float(np.asarray(simsimd().cdist(ones, ones, "dot")).item())
    return abs(found - exact) <= _PROBE_ERROR * exact
