"""Trains the rotation of vectors before they are encoded with short codes.

Codes of less than one bit per dimension lose most of a vector's variance. A rotation to fewer dimensions drops the
directions of least variance (principal components), and balances the rest over the sub-quantizers (a random
rotation; both as in Jégou et al. 2010, "Aggregating local descriptors into a compact image representation",
section 3.2).

Measured on a third of squad (57,189 vectors of 384 dimensions, 7,647 documents, 1,000 queries): candidates to
rescore for .99 of the best ten, and nDCG@10 of codes alone (of the vectors: .825).

===========  ================  ==================  ===============  =============
bytes        rotated to        candidates          nDCG@10          rotated
===========  ================  ==================  ===============  =============
8            128               923, rotated 579    .460             .526
12           144               557, rotated 322    .590             .634
16           128               324, rotated 160    .649             .673
24           192               146, rotated 87     .720             .739
48           192               45, rotated 34      .783             .779
===========  ================  ==================  ===============  =============

With the same number of candidates a search takes the same time with and without a rotation: rotating the query
takes as long as shorter coarse centroids save. OPQ (Ge et al. 2013) was not better: rotations fitted to the codes
(its non-parametric form) needed as many candidates and found no more by codes alone, and axes allocated to
sub-quantizers by their variances (eigenvalue allocation, its parametric form) found fewer.
"""

from __future__ import annotations

import numpy as np

from quarry.engine.quantization.codebook import train_codes
from quarry.formats.arrays import Float32Array
from quarry.formats.vectors.centroids import StoredBatch

__all__ = ["train_rotation"]


_MAX_DIM = 2048  # principal components of more take too long, and too much memory
_MIN_ROWS = 1024  # fewer are too small a sample for principal components
_AXES_ROWS = 1 << 15  # of the sample that principal axes are computed from
_TRIAL_ROWS = {4: 4096, 8: 1 << 14}  # by bits of a sub-vector's number
_ENOUGH = 1.1  # times the least error: among similar errors, more dimensions found more by codes alone


def train_rotation(
    sample: Float32Array | StoredBatch, n_sub: int, seed: int, nbits: int = 4
) -> Float32Array | None:
    """Train the rotation with the least quantization error; None if the error without one is hardly larger.

    Half of the rows are used for training and the others for the error, at up to two dimensions per doubling.

    Args:
        sample: (n, dim) float32 training vectors, in the order of their documents.
        n_sub: number of sub-quantizers; it divides dim.
        seed: the seed of the random rotation and of the k-means.
        nbits: the number of bits of the number of a sub-vector, 4 or 8.

    Returns:
        (dim_out, dim) float32, its rows orthonormal, dim_out below dim and a multiple of n_sub.
    """
    dim = sample.shape[1]
    if dim > _MAX_DIM or len(sample) < _MIN_ROWS:
        return None
    rows, held_out = (_sample_rows(sample, first, _TRIAL_ROWS[nbits]) for first in (0, 1))
    axes = _principal_axes(_sample_rows(sample, 0, _AXES_ROWS))
    tried: list[Float32Array | None] = [None]
    errors = [_error(rows, held_out, None, n_sub, seed, nbits)]
    for dsub in _widths(dim // n_sub):
        rotation = _random_rotation(n_sub * dsub, seed) @ axes[: n_sub * dsub]
        if _dropped(held_out, rotation) > min(errors):
            break  # fewer dimensions lose even more
        tried.append(rotation)
        errors.append(_error(rows, held_out, rotation, n_sub, seed, nbits))
    enough = _ENOUGH * min(errors)
    return next(rotation for rotation, error in zip(tried, errors, strict=True) if error <= enough)


def _principal_axes(rows: Float32Array) -> Float32Array:
    """Return (dim, dim) float32, the principal axes of (n, dim) rows as orthonormal rows, largest variance first.

    The mean is not subtracted, because the error of a dropped direction is measured from zero.
    """
    moments = (rows.T @ rows).astype(np.float64)
    axes: Float32Array = np.linalg.eigh(moments)[1][:, ::-1].T.astype(np.float32)
    return axes


def _random_rotation(dim: int, seed: int) -> Float32Array:
    """Return a (dim, dim) float32 orthonormal matrix, uniformly distributed."""
    axes, triangle = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))
    rotation: Float32Array = (axes * np.sign(np.diag(triangle))).astype(np.float32)
    return rotation


def _widths(limit: int) -> list[int]:
    """Return the powers of two, and three times these, below the limit, descending."""
    powers = [1 << exponent for exponent in range(limit.bit_length())]
    return sorted({width for power in powers for width in (power, 3 * power) if width < limit}, reverse=True)


def _error(
    rows: Float32Array, held_out: Float32Array, rotation: Float32Array | None, n_sub: int, seed: int, nbits: int
) -> float:
    """Return the mean squared error of codes on (n, dim) held-out rows, trained on other rows."""
    lost = 0.0
    if rotation is not None:
        lost = _dropped(held_out, rotation)
        rows, held_out = rows @ rotation.T, held_out @ rotation.T
    codes = train_codes(rows, n_sub, seed, nbits=nbits)
    rest = held_out - codes.decode(codes.compute_codes(np.ascontiguousarray(held_out)))
    return lost + _mean_square(rest)


def _dropped(rows: Float32Array, rotation: Float32Array) -> float:
    """Return the mean squared length of the parts of (n, dim) rows that a rotation drops."""
    return _mean_square(rows) - _mean_square(rows @ rotation.T)


def _mean_square(rows: Float32Array) -> float:
    return float(np.einsum("ij,ij", rows, rows)) / len(rows)


def _sample_rows(sample: Float32Array | StoredBatch, first: int, n: int) -> Float32Array:
    """Return at most n of every second row from the first one on, evenly spaced."""
    places = np.arange(first, len(sample), 2)
    return sample[places[:: -(-len(places) // n)]]
