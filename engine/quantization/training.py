"""Trains quantizers and codes vectors with them, by FAISS on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.candidates import measured_candidate_rows
from quarry.engine.quantization.codebook import codebook_of, train_codes
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.quantization.nprobe import probe_recall
from quarry.engine.quantization.rotation import trained_rotation
from quarry.formats.manifest import IndexSettings
from quarry.formats.vectors.quantization_error import QuantizationError, list_imbalance
from quarry.formats.vectors.quantizer import Quantizer

__all__ = [
    "MIN_TRAINING_ROWS",
    "VectorCoder",
    "measured",
    "n_training_rows",
    "nlist_for",
    "train_lists",
    "train_on",
    "train_quantizer",
]

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

_LEAST_LISTED_ROWS = 20_000  # fewer are scanned as fast as lists are read (bench/results/ivf_switch.jsonl)
MIN_TRAINING_ROWS = 1024  # fewer do not make a codebook of 16 sub-vectors that is worth its bytes
_ROWS_PER_LIST = 64  # more trained no better lists on 122,084 vectors; a codebook wants some 10,000
_TRAINING_BYTES = 256 << 20
_COARSE_ITERATIONS = 8
_FIT_STRIDE = 8  # of so many vectors one is decoded, to see how well the quantizer fits
_CODED_AT_ONCE = 8192


def nlist_for(n_rows: int) -> int:
    """Number of inverted lists for `n_rows` centroids: the power of two nearest to 3/4 of its root."""
    return int(2 ** max(0, round(math.log2(0.75 * math.sqrt(max(1, n_rows))))))


def n_training_rows(n_rows: int, dim: int) -> int:
    """How many of `n_rows` centroids a quantizer is trained on."""
    return min(n_rows, _ROWS_PER_LIST * nlist_for(n_rows), _TRAINING_BYTES // (4 * dim))


def train_quantizer(sample: Floats, nlist: int, code_bytes: int, seed: int, threads: int) -> Quantizer:
    """Train coarse centroids and a PQ codebook of 4-bit codes; for codes of less than a bit a number, a rotation.

    At a bit a number a rotation finds hardly more, so that vectors are coded as they are.

    Args:
        sample: (n, dim) float32 training vectors, in the order of their documents.
        nlist: number of inverted lists; lowered where the sample is too small for as many.
        code_bytes: bytes of a code: 2 x code_bytes sub-quantizers of 16 sub-vectors each (Jégou et al. 2011).
        seed: of the k-means, and of the rotation.
        threads: how many to use.
    """
    short = 8 * code_bytes < sample.shape[1]
    rotation = trained_rotation(sample, 2 * code_bytes, seed) if short else None
    turned = sample if rotation is None else sample @ rotation.T
    coarse = _coarse_centroids(turned, max(1, min(nlist, len(sample) // 16)), seed, threads)
    codebook = codebook_of(train_codes(turned, 2 * code_bytes, seed))
    return Quantizer(coarse, codebook, codebook, rotation, False)


def _coarse_centroids(sample: Floats, nlist: int, seed: int, threads: int) -> Floats:
    """(nlist, dim) float32: the k-means of (n, dim) float32 rows."""
    import faiss

    set_faiss_threads(threads)
    kmeans = faiss.Kmeans(
        sample.shape[1],
        nlist,
        niter=_COARSE_ITERATIONS,
        seed=seed & 0x7FFFFFFF,
        spherical=False,
        min_points_per_centroid=1,
        max_points_per_centroid=1 << 30,
    )
    kmeans.train(sample)
    return np.ascontiguousarray(kmeans.centroids, np.float32)


def measured(quantizer: Quantizer, sample: Floats, n_rows: int, threads: int) -> Quantizer:
    """The same quantizer with what was measured of it.

    How well it fits, how many lists a search should read, how many rows it should look at more closely.

    Args:
        quantizer: as it was trained.
        sample: (n, dim) float32 that it was trained on, in the order of their documents.
        n_rows: of the index.
        threads: how many to use.
    """
    coder = VectorCoder(quantizer, threads)
    coded = [coder.code(sample[low : low + _CODED_AT_ONCE]) for low in range(0, len(sample), _CODED_AT_ONCE)]
    lists, codes = (np.concatenate(part) for part in zip(*coded, strict=True))
    sizes = np.bincount(lists, minlength=quantizer.nlist)
    return replace(
        quantizer,
        probe_recall=probe_recall(sample, quantizer),
        candidate_rows=measured_candidate_rows(quantizer, sample, lists, codes),
        fit=replace(coder.fit(sizes), n_rows=n_rows),
    )


def train_on(batches: Iterable[Floats], n_rows: int, settings: IndexSettings, threads: int) -> Quantizer:
    """Train a quantizer for `n_rows` centroids on a sample of them, in memory that does not grow with the rows.

    Args:
        batches: the centroids, (n, dim) float32 each.
        n_rows: how many there are in all.
        settings: of the index.
        threads: how many to use.
    """
    sample = _sample(batches, n_rows, settings)
    trained = train_quantizer(sample, nlist_for(n_rows), settings.code_bytes, settings.seed, threads)
    return measured(trained, sample, n_rows, threads)


def train_lists(
    codes: Quantizer, batches: Iterable[Floats], n_rows: int, settings: IndexSettings, threads: int
) -> Quantizer:
    """Give a quantizer that was trained with an encoder the inverted lists of `n_rows` centroids.

    Its rotation and its codebooks stay, so the code of a vector is the same in every index. Few rows need no
    lists: then the quantizer is returned as it is, with the one list that it has, as is one that codes residuals,
    whose lists belong to its codes.

    Args:
        codes: the quantizer.
        batches: the centroids, (n, dim) float32 each.
        n_rows: how many there are in all.
        settings: of the index.
        threads: how many to use.
    """
    if codes.by_residual or n_rows < _LEAST_LISTED_ROWS:
        return codes
    sample = _sample(batches, n_rows, settings)
    nlist = max(1, min(nlist_for(n_rows), len(sample) // 16))
    coarse = _coarse_centroids(codes.rotate(sample), nlist, settings.seed, threads)
    return measured(replace(codes, coarse=coarse), sample, n_rows, threads)


def _sample(batches: Iterable[Floats], n_rows: int, settings: IndexSettings) -> Floats:
    """Draw training rows, in the order of the batches: (n, dim) float32."""
    n_sample = n_training_rows(n_rows, settings.dim)
    generator = np.random.default_rng(settings.seed)
    # one row out of each of n_sample equal stretches
    places = (np.arange(n_sample) + generator.random(n_sample)) * (n_rows / n_sample)
    chosen = np.minimum(places.astype(np.int64), n_rows - 1)
    sample = np.empty((n_sample, settings.dim), np.float32)
    start = seen = 0
    for batch in batches:
        stop = int(np.searchsorted(chosen, seen + len(batch)))
        sample[start:stop] = batch[chosen[start:stop] - seen]
        start, seen = stop, seen + len(batch)
    return sample


class VectorCoder:
    """Assigns vectors to lists and codes them with one quantizer.

    Args:
        quantizer: what to code with.
        threads: how many to use.
    """

    def __init__(self, quantizer: Quantizer, threads: int) -> None:
        import faiss

        self._quantizer = quantizer
        self._threads = threads
        self._squares = np.zeros(2)  # of distances to coarse centroids and to what codes stand for
        self._n_noted = 0
        n_sub, ksub, dsub = quantizer.encode_codebook.shape
        self._coarse = faiss.IndexFlatIP(n_sub * dsub)
        self._coarse.add(quantizer.coarse)
        self._pq = faiss.ProductQuantizer(n_sub * dsub, n_sub, int(ksub).bit_length() - 1)
        faiss.copy_array_to_vector(np.ascontiguousarray(quantizer.encode_codebook).ravel(), self._pq.centroids)

    def code(self, vectors: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """(n, dim) float32 vectors to (n,) list numbers and (n, code_bytes) uint8 codes."""
        set_faiss_threads(self._threads)
        turned = np.ascontiguousarray(self._quantizer.rotate(vectors), np.float32)
        lists = self._coarse.search(turned, 1)[1][:, 0].astype(np.int64)
        rest = turned - self._quantizer.coarse[lists] if self._quantizer.by_residual else turned
        codes = self._pq.compute_codes(np.ascontiguousarray(rest))
        some = slice(None, None, _FIT_STRIDE)
        self._note_left_out(vectors[some], turned[some])
        self._note_errors(turned[some], lists[some], rest[some], codes[some])
        return lists, codes

    def fit(self, sizes: npt.NDArray[np.int64]) -> QuantizationError:
        """How well the quantizer fits the vectors coded so far, whose lists have (nlist,) these sizes."""
        coarse_error, code_error = self._squares / max(1, self._n_noted)
        return QuantizationError(
            n_rows=int(sizes.sum()),
            coarse_error=float(coarse_error),
            code_error=float(code_error),
            imbalance=list_imbalance(sizes),
        )

    def _note_left_out(self, vectors: Floats, turned: Floats) -> None:
        """What a rotation to fewer numbers leaves out of vectors is an error of both."""
        if self._quantizer.rotation is not None:
            left_out = vectors - turned @ self._quantizer.rotation
            self._squares += np.einsum("ij,ij", left_out, left_out)

    def _note_errors(self, turned: Floats, lists: npt.NDArray[np.int64], rest: Floats, codes: Codes) -> None:
        away, lost = turned - self._quantizer.coarse[lists], rest - self._pq.decode(np.ascontiguousarray(codes))
        self._squares += [np.einsum("ij,ij", each, each) for each in (away, lost)]
        self._n_noted += len(turned)
