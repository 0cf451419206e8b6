"""A query as three int8 digits, so that integer SIMD instructions compute its exact scores.

Write q / s in base 254 with balanced digits: q = s (a + b / 254 + c / 254²), s = max|q| / 127. Three int8 inner
products, exact in 32-bit integers, then give the score of an int8 centroid with an error of about 2e-7 |q| |c|:
as accurate as float32, the same on every machine, and faster than converting the centroids to floats. The first
digit alone gives approximate scores of known error (`rounding`).
"""

from __future__ import annotations

import numpy as np

from quarry.engine.scoring.simd import simsimd
from quarry.formats.arrays import Float32Array, Float64Array, Int8Array

__all__ = ["BASE", "Int8Query"]

BASE = 254.0
"""The value of a digit's unit in units of the next digit."""


class Int8Query:
    """One query, prepared for products with int8 rows.

    Args:
        query: (dim,) float32.

    Attributes:
        digits: (3, dim) int8, the most significant first.
        scale: value of one unit of the first digit.
        rounding: Euclidean norm of the difference between the query and its first digit.
    """

    def __init__(self, query: Float32Array) -> None:
        largest = float(np.abs(query).max(initial=0.0))
        self.scale = largest / 127 or 1.0
        rest = query.astype(np.float64) / self.scale
        digits = np.empty((3, len(query)), np.int8)
        for place in range(3):
            digit = np.rint(rest)
            digits[place] = digit
            rest = (rest - digit) * BASE
            if place == 0:
                self.rounding = float(np.linalg.norm(rest)) / BASE * self.scale
        self.digits = digits

    def scores(self, rows: Int8Array, scales: Float32Array) -> Float32Array:
        """Return the scores of (n, dim) int8 rows with (n,) scales: (n,) float32."""
        products = _products(self.digits, rows)
        exact = products[0] + (products[1] + products[2] / BASE) / BASE
        scaled: Float32Array = (exact * (scales * np.float64(self.scale))).astype(np.float32)
        return scaled

    def approximate_scores(self, rows: Int8Array, scales: Float32Array) -> Float32Array:
        """Return scores by the first digit alone, with an error of at most `rounding` times a centroid's norm."""
        products = _products(self.digits[:1], rows)[0] * (scales * np.float64(self.scale))
        scaled: Float32Array = products.astype(np.float32)
        return scaled


def _products(digits: Int8Array, rows: Int8Array) -> Float64Array:
    """Return (n_digits, n_rows) inner products, exact integers."""
    if not len(rows):
        return np.empty((len(digits), 0))
    return np.asarray(simsimd().cdist(rows, digits, "dot")).reshape(len(rows), len(digits)).T
