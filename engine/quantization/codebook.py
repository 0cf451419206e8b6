"""Trains the codebook of a product quantizer (Jégou et al. 2011, section II.B), by FAISS on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.faiss_threads import set_faiss_threads

__all__ = ["codebook_of", "train_codes"]

Floats = npt.NDArray[np.float32]

_ITERATIONS = 15
_ROWS = 4096  # 256 for each of 16 sub-vectors, which is what k-means in FAISS takes at most


def train_codes(sample: Floats, n_sub: int, seed: int) -> Any:  # noqa: ANN401
    """FAISS's product quantizer of 4-bit codes for such vectors.

    Args:
        sample: (n, dim) float32; some thousands of rows, evenly spread, are trained on.
        n_sub: number of sub-quantizers; it divides dim.
        seed: of the k-means.
    """
    import faiss

    quantizer = faiss.ProductQuantizer(sample.shape[1], n_sub, 4)
    quantizer.cp.niter = _ITERATIONS
    quantizer.cp.seed = seed & 0x7FFFFFFF
    quantizer.cp.min_points_per_centroid = 1
    set_faiss_threads(1)  # sub-quantizers are so small that waiting for one another takes longer
    quantizer.train(sample[:: max(1, len(sample) // _ROWS)][:_ROWS])
    return quantizer


def codebook_of(quantizer: Any) -> Floats:  # noqa: ANN401
    """(n_sub, 16, dsub) float32: its sub-vectors."""
    import faiss

    codebook: Floats = faiss.vector_to_array(quantizer.centroids).reshape(quantizer.M, 16, -1).astype(np.float32)
    return codebook
