"""Encodes vectors with a quantizer, with FAISS on the CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.formats.vectors.quantization_error import QuantizationError, list_imbalance
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["VectorCoder"]

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

_ERROR_STRIDE = 8  # one in so many vectors is decoded, to measure the quantization error


class VectorCoder:
    """Assigns vectors to lists and encodes them with one quantizer, and measures the quantization error.

    Args:
        quantizer: what to encode with.
        threads: how many to use.
    """

    def __init__(self, quantizer: Quantizer, threads: int) -> None:
        import faiss

        self._quantizer = quantizer
        self._threads = threads
        self._squares = np.zeros(2)  # of distances to coarse centroids and to decoded codes, summed
        self._n_measured = 0
        n_sub, ksub, dsub = quantizer.encode_codebook.shape
        self._coarse = faiss.IndexFlatIP(n_sub * dsub)
        self._coarse.add(quantizer.coarse)
        self._pq = faiss.ProductQuantizer(n_sub * dsub, n_sub, int(ksub).bit_length() - 1)
        faiss.copy_array_to_vector(np.ascontiguousarray(quantizer.encode_codebook).ravel(), self._pq.centroids)

    def code(self, vectors: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """Return (n,) int64 list numbers and (n, code_bytes) uint8 codes of (n, dim) float32 vectors."""
        set_faiss_threads(self._threads)
        rotated = np.ascontiguousarray(self._quantizer.rotate(vectors), np.float32)
        lists = self._coarse.search(rotated, 1)[1][:, 0].astype(np.int64)
        rest = rotated - self._quantizer.coarse[lists] if self._quantizer.by_residual else rotated
        codes = self._pq.compute_codes(np.ascontiguousarray(rest))
        some = slice(None, None, _ERROR_STRIDE)
        self._measure_rotation(vectors[some], rotated[some])
        self._measure_codes(rotated[some], lists[some], rest[some], codes[some])
        return lists, codes

    def fit(self, sizes: npt.NDArray[np.int64]) -> QuantizationError:
        """Return the error of the vectors encoded so far, whose lists have (nlist,) these sizes."""
        coarse_error, code_error = self._squares / max(1, self._n_measured)
        return QuantizationError(
            n_rows=int(sizes.sum()),
            coarse_error=float(coarse_error),
            code_error=float(code_error),
            imbalance=list_imbalance(sizes),
        )

    def _measure_rotation(self, vectors: Floats, rotated: Floats) -> None:
        """Add the parts of vectors that a rotation to fewer dimensions drops to both errors."""
        if self._quantizer.rotation is not None:
            dropped = vectors - rotated @ self._quantizer.rotation
            self._squares += np.einsum("ij,ij", dropped, dropped)

    def _measure_codes(self, rotated: Floats, lists: npt.NDArray[np.int64], rest: Floats, codes: Codes) -> None:
        away, lost = rotated - self._quantizer.coarse[lists], rest - self._pq.decode(np.ascontiguousarray(codes))
        self._squares += [np.einsum("ij,ij", each, each) for each in (away, lost)]
        self._n_measured += len(rotated)
