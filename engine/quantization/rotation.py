"""Trains the rotation that vectors take before they are coded, for codes that are short against them.

Codes of less than a bit a number lose most of a vector, wherever it varies. A rotation to fewer numbers leaves out
where it varies least (principal components), and shares the rest out evenly among the sub-quantizers (a random
rotation; both as in Jégou et al. 2010, "Aggregating local descriptors into a compact image representation", 3.2).

Measured on a third of squad (57,189 vectors of 384 numbers, 7,647 documents, 1,000 questions): candidates to
rescore for .99 of the best ten, and nDCG@10 of codes alone (of whole vectors: .825).

===========  ================  ==================  ===============  =============
bytes        rotated to        candidates          nDCG@10          rotated
===========  ================  ==================  ===============  =============
8            128               923, rotated 579    .460             .526
12           144               557, rotated 322    .590             .634
16           128               324, rotated 160    .649             .673
24           192               146, rotated 87     .720             .739
48           192               45, rotated 34      .783             .779
===========  ================  ==================  ===============  =============

At equal numbers of candidates a search takes the same time with and without: turning the query costs what lists of
shorter coarse centroids save. OPQ (Ge et al. 2013) did not do better: rotations fitted to the codes (its
non-parametric form) found as many candidates and no more by codes alone, and axes allotted to sub-quantizers by
their variances (eigenvalue allocation, its parametric form) fewer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.codebook import train_codes

__all__ = ["trained_rotation"]

Floats = npt.NDArray[np.float32]

_MAX_DIM = 2048  # the axes of more take too long, and too much memory
_MIN_ROWS = 1024  # fewer say too little about axes
_AXES_ROWS = 1 << 15
_TRIAL_ROWS = 4096
_ENOUGH = 1.1  # times the least error: of dimensions about as good, the larger found more by codes alone


def trained_rotation(sample: Floats, n_sub: int, seed: int) -> Floats | None:
    """The rotation to the dimension at which codes lose least; None where without one they lose hardly more.

    Half of the rows are trained on, the others measured, at up to two dimensions for each doubling.

    Args:
        sample: (n, dim) float32 training vectors, in the order of their documents.
        n_sub: number of 4-bit sub-quantizers; it divides dim.
        seed: of the random rotation and of the k-means.

    Returns:
        (dim_out, dim) float32, its rows orthonormal, dim_out below dim and a multiple of n_sub.
    """
    dim = sample.shape[1]
    if dim > _MAX_DIM or len(sample) < _MIN_ROWS:
        return None
    rows, held_out = _thinned(sample[::2], _TRIAL_ROWS), _thinned(sample[1::2], _TRIAL_ROWS)
    axes = _principal_axes(_thinned(sample[::2], _AXES_ROWS))
    tried: list[Floats | None] = [None]
    errors = [_error(rows, held_out, None, n_sub, seed)]
    for dsub in _widths(dim // n_sub):
        rotation = _random_rotation(n_sub * dsub, seed) @ axes[: n_sub * dsub]
        if _left_out(held_out, rotation) > min(errors):
            break  # and more so below
        tried.append(rotation)
        errors.append(_error(rows, held_out, rotation, n_sub, seed))
    enough = _ENOUGH * min(errors)
    return next(rotation for rotation, error in zip(tried, errors, strict=True) if error <= enough)


def _principal_axes(rows: Floats) -> Floats:
    """(dim, dim) float32: orthonormal rows, along the first of which (n, dim) rows are longest.

    Means are not taken off first: what is left out counts from zero on.
    """
    moments = (rows.T @ rows).astype(np.float64)
    axes: Floats = np.linalg.eigh(moments)[1][:, ::-1].T.astype(np.float32)
    return axes


def _random_rotation(dim: int, seed: int) -> Floats:
    """(dim, dim) float32, orthonormal, each as likely as any other."""
    axes, triangle = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))
    rotation: Floats = (axes * np.sign(np.diag(triangle))).astype(np.float32)
    return rotation


def _widths(limit: int) -> list[int]:
    """Powers of two and three times these, below the limit, falling."""
    powers = [1 << exponent for exponent in range(limit.bit_length())]
    return sorted({width for power in powers for width in (power, 3 * power) if width < limit}, reverse=True)


def _error(rows: Floats, held_out: Floats, rotation: Floats | None, n_sub: int, seed: int) -> float:
    """Mean squared distance of (n, dim) held-out rows to what codes stand for that were trained on others."""
    lost = 0.0
    if rotation is not None:
        lost = _left_out(held_out, rotation)
        rows, held_out = rows @ rotation.T, held_out @ rotation.T
    codes = train_codes(rows, n_sub, seed)
    rest = held_out - codes.decode(codes.compute_codes(np.ascontiguousarray(held_out)))
    return lost + _mean_square(rest)


def _left_out(rows: Floats, rotation: Floats) -> float:
    """Mean squared length of what orthonormal rows of a rotation leave out of (n, dim) rows."""
    return _mean_square(rows) - _mean_square(rows @ rotation.T)


def _mean_square(rows: Floats) -> float:
    return float(np.einsum("ij,ij", rows, rows)) / len(rows)


def _thinned(rows: Floats, n: int) -> Floats:
    """At most n of the rows, evenly spread."""
    return np.ascontiguousarray(rows[:: -(-len(rows) // n)])
