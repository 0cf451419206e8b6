"""Trains the codebook of a product quantizer (Jégou et al. 2011, section II.B), by FAISS on the CPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from quarry.engine.process.worker_pool import map_on_threads
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.formats.arrays import Float32Array, Int64Array

__all__ = ["extract_codebook", "place_trained_rows", "train_codes"]


_ITERATIONS = 15  # of k-means for each sub-quantizer
_ROWS = {4: 4096, 8: 1 << 15}  # by bits: 256 for each of 16 sub-vectors, all that FAISS uses; 128 for each of 256


def place_trained_rows(n_rows: int, nbits: int = 4) -> Int64Array:
    """Return the places, evenly spaced, of those of `n_rows` rows that `train_codes` uses."""
    return np.arange(0, n_rows, max(1, n_rows // _ROWS[nbits]))[: _ROWS[nbits]]


def train_codes(sample: Float32Array, n_sub: int, seed: int, threads: int = 1, nbits: int = 4) -> Any:  # noqa: ANN401
    """Train a product quantizer of FAISS.

    Each sub-quantizer is trained on its own, so the result does not depend on the number of threads.

    Args:
        sample: (n, dim) float32; those of `place_trained_rows` are used.
        n_sub: number of sub-quantizers; it divides dim.
        seed: the seed of the k-means.
        threads: how many to use; each trains some of the sub-quantizers.
        nbits: the number of bits of the number of a sub-vector, 4 or 8.
    """
    import faiss

    rows = sample[place_trained_rows(len(sample), nbits)]
    if len(rows) < 1 << nbits:
        rows = np.resize(rows, (1 << nbits, rows.shape[1]))  # each row about as often; FAISS needs so many
    dsub = sample.shape[1] // n_sub
    bounds = np.linspace(0, n_sub, min(threads, n_sub) + 1).astype(np.int64).tolist()

    def train_some(part: tuple[int, int]) -> Float32Array:
        low, high = part
        return _train_on_thread(np.ascontiguousarray(rows[:, low * dsub : high * dsub]), high - low, seed, nbits)

    trained = map_on_threads(train_some, list(pairwise(bounds)), threads, "quarry-train")
    quantizer = faiss.ProductQuantizer(sample.shape[1], n_sub, nbits)
    faiss.copy_array_to_vector(np.concatenate(trained).ravel(), quantizer.centroids)
    return quantizer


def _train_on_thread(rows: Float32Array, n_sub: int, seed: int, nbits: int) -> Float32Array:
    """Train sub-quantizers on the calling thread; return their sub-vectors as `extract_codebook` does."""
    import faiss

    quantizer = faiss.ProductQuantizer(rows.shape[1], n_sub, nbits)
    quantizer.cp.niter = _ITERATIONS
    quantizer.cp.seed = seed & 0x7FFFFFFF
    quantizer.cp.min_points_per_centroid = 1
    set_faiss_threads(1)  # sub-quantizers are so small that synchronizing threads takes longer
    quantizer.train(rows)
    return extract_codebook(quantizer)


def extract_codebook(quantizer: Any) -> Float32Array:  # noqa: ANN401
    """Return the (n_sub, ksub, dsub) float32 sub-vectors of a product quantizer of FAISS."""
    import faiss

    codebook: Float32Array = (
        faiss.vector_to_array(quantizer.centroids).reshape(quantizer.M, quantizer.ksub, -1).astype(np.float32)
    )
    return codebook
