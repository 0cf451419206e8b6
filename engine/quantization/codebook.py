"""Trains the codebook of a product quantizer (Jégou et al. 2011, section II.B), by FAISS on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.faiss_threads import set_faiss_threads

__all__ = ["extract_codebook", "train_codes"]

Floats = npt.NDArray[np.float32]

_ITERATIONS = 15
_ROWS = 4096  # 256 for each of 16 sub-vectors, the maximum that k-means in FAISS uses


def train_codes(sample: Floats, n_sub: int, seed: int) -> Any:  # noqa: ANN401
    """Train a product quantizer of FAISS with 4-bit codes.

    Args:
        sample: (n, dim) float32; at most 4,096 evenly spaced rows are used.
        n_sub: number of sub-quantizers; it divides dim.
        seed: of the k-means.
    """
    import faiss

    quantizer = faiss.ProductQuantizer(sample.shape[1], n_sub, 4)
    quantizer.cp.niter = _ITERATIONS
    quantizer.cp.seed = seed & 0x7FFFFFFF
    quantizer.cp.min_points_per_centroid = 1
    set_faiss_threads(1)  # sub-quantizers are so small that synchronizing threads takes longer
    quantizer.train(sample[:: max(1, len(sample) // _ROWS)][:_ROWS])
    return quantizer


def extract_codebook(quantizer: Any) -> Floats:  # noqa: ANN401
    """Return the (n_sub, 16, dsub) float32 sub-vectors of a product quantizer of FAISS."""
    import faiss

    codebook: Floats = faiss.vector_to_array(quantizer.centroids).reshape(quantizer.M, 16, -1).astype(np.float32)
    return codebook
