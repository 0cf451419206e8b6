"""Assigns vectors to inverted lists: to the coarse centroids with the largest inner products.

In float32, these products take a third of the time of a build of a million vectors. On CPUs that are faster at
products of int8 numbers (`Int8Products`), both sides are rounded to int8 first. Where
other centroids score so close to the best one that rounding may have changed their order, all of these are
compared again in float32, which gives the lists of float32 products: the same for each of 100,000 vectors of 384
numbers and 1,024 lists, while products of rounded vectors alone give another list to one vector in 150. It takes
3.3 us for a vector instead of 7.8.

Rounding errors of the dimensions are taken as independent, with the standard deviation of uniform ones, and five
standard deviations of their sum are allowed for.
"""

from __future__ import annotations

import threading
from functools import cache

import numpy as np

from quarry.engine.encoding.runtimes.onnx_session import open_graph
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.scoring.simd import simsimd
from quarry.formats.arrays import (
    BoolArray,
    Float32Array,
    Float64Array,
    Int8Array,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from quarry.formats.bundle.protobuf import pack_bytes_field, pack_number_field
from quarry.formats.vectors.centroids import quantize_int8

__all__ = ["Int8Products", "ListAssigner", "RoundedCentroids", "has_fast_int8"]

_ZERO = 128  # of a row, as uint8
_IR_VERSION, _OPSET = 8, 13  # of ONNX, which has MatMulInteger since 10
_UINT8, _INT8, _INT32 = 2, 3, 6  # TensorProto.DataType


@cache
def has_fast_int8() -> bool:
    """Return whether this CPU has AVX-512 VNNI: then `Int8Products` is exact, and faster than float32 products."""
    return bool(simsimd().get_capabilities().get("ice", False))


class Int8Products:
    """Inner products of rows with the same vectors; safe to use from several threads, each call runs on its own.

    A CPU with AVX-512 VNNI multiplies and adds four times as many int8 numbers as float32 numbers in the same
    time. Of the libraries that the engine needs, only ONNX Runtime has a matrix product for it, the operator
    MatMulInteger: with 1,024 vectors of 384 numbers it takes 1.9 us for a row, float32 products in OpenBLAS take
    7.7 us. The rows are passed as uint8 with a zero point, because the kernel for int8 rows takes 13 times as
    long. On x86 CPUs without these instructions the operator adds pairs of products in 16 bits, which overflow;
    see `has_fast_int8`.

    Args:
        vectors: (n, dim) int8, dim at most 65,536.
    """

    def __init__(self, vectors: Int8Array) -> None:
        self._session = open_graph(_make_graph(np.ascontiguousarray(vectors.T)))

    def write(self, rows: Int8Array, products: Int32Array) -> None:
        """Write the inner products of rows with all vectors to an array.

        The array is the caller's, because memory that the library allocates anew in each call and each thread
        stays with the process.

        Args:
            rows: (b, dim) int8, contiguous, b at least 1.
            products: (b, n) int32, contiguous.
        """
        shifted = np.bitwise_xor(rows.view(np.uint8), np.uint8(_ZERO))
        bound = self._session.io_binding()
        bound.bind_cpu_input("rows", shifted)
        bound.bind_output("products", "cpu", 0, np.int32, products.shape, products.ctypes.data)
        self._session.run_with_iobinding(bound)


def _make_graph(matrix: Int8Array) -> bytes:
    """Return an ONNX model that multiplies (b, dim) uint8 rows with a constant (dim, n) int8 matrix."""
    inputs = ("rows", "matrix", "zero")
    node = b"".join(pack_bytes_field(1, name.encode()) for name in inputs)
    node += pack_bytes_field(2, b"products") + pack_bytes_field(4, b"MatMulInteger")
    dim, n = matrix.shape
    graph = pack_bytes_field(1, node) + pack_bytes_field(2, b"products")
    graph += pack_bytes_field(5, _make_tensor("matrix", matrix, _INT8))
    graph += pack_bytes_field(5, _make_tensor("zero", np.array(_ZERO, np.uint8), _UINT8))
    graph += pack_bytes_field(11, _make_value("rows", _UINT8, dim))
    graph += pack_bytes_field(12, _make_value("products", _INT32, n))
    opset = pack_bytes_field(1, b"") + pack_number_field(2, _OPSET)
    return pack_number_field(1, _IR_VERSION) + pack_bytes_field(7, graph) + pack_bytes_field(8, opset)


def _make_tensor(name: str, array: Int8Array | UInt8Array, kind: int) -> bytes:
    """Return a TensorProto."""
    dims = b"".join(pack_number_field(1, size) for size in array.shape)
    return (
        dims
        + pack_number_field(2, kind)
        + pack_bytes_field(8, name.encode())
        + pack_bytes_field(9, array.tobytes())
    )


def _make_value(name: str, kind: int, width: int) -> bytes:
    """Return the ValueInfoProto of a matrix with any number of rows."""
    dims = (pack_bytes_field(2, b"b"), pack_number_field(1, width))
    shape = b"".join(pack_bytes_field(1, dim) for dim in dims)
    tensor = pack_number_field(1, kind) + pack_bytes_field(2, shape)
    return pack_bytes_field(1, name.encode()) + pack_bytes_field(2, pack_bytes_field(1, tensor))


_DEVIATIONS = 5.0  # standard deviations of the rounding error that are allowed for
_MIN_CENTROIDS = 256  # of fewer, rounding a vector takes as long as the products that it saves
_MIN_DIM = 64  # as for `_MIN_CENTROIDS`
_MIN_ROWS = 2048  # of the first batch that is rounded; small commits do not load ONNX Runtime for it
_MAX_CANDIDATES = 8  # that are compared again for a vector; of more, all centroids are
_MAX_OPEN = 0.5  # share of a batch; if more vectors are compared with all centroids again, rounding saves nothing
_LEAST_SCALE = float(np.finfo(np.float32).tiny)
_TINY = float(np.finfo(np.float64).tiny)
_SCORES = 1 << 19  # of a block; more do not stay in the cache of a core


class ListAssigner:
    """Finds the coarse centroid of each vector; safe to use from several threads.

    Args:
        centroids: (nlist, dim) float32.
    """

    def __init__(self, centroids: Float32Array) -> None:
        import faiss

        self._centroids = centroids
        self._exact = faiss.IndexFlatIP(centroids.shape[1])
        self._exact.add(centroids)
        self._is_rounding = RoundedCentroids.pays(*centroids.shape)
        self._rounded: RoundedCentroids | None = None
        self._mutex = threading.Lock()

    def assign(self, vectors: Float32Array, threads: int) -> Int64Array:
        """Return the (n,) int64 numbers of the centroids with the largest inner products.

        Args:
            vectors: (n, dim) float32, contiguous.
            threads: how many float32 products may use.
        """
        rounded = self._get_rounded(len(vectors))
        if rounded is None:
            return self._assign_exactly(vectors, threads)
        lists, is_open = rounded.find_best(vectors)
        if is_open.any():
            lists[is_open] = self._assign_exactly(vectors[is_open], threads)
        # Centroids that are all alike, or vectors far from all of them: rounding then costs more than it saves.
        if np.count_nonzero(is_open) > _MAX_OPEN * len(vectors):
            self._is_rounding = False
        return lists

    def _assign_exactly(self, vectors: Float32Array, threads: int) -> Int64Array:
        set_faiss_threads(threads)
        lists: Int64Array = self._exact.search(vectors, 1)[1][:, 0].astype(np.int64)
        return lists

    def _get_rounded(self, n_rows: int) -> RoundedCentroids | None:
        """Return the rounded centroids; None if a batch of that size is compared in float32."""
        if not self._is_rounding or (self._rounded is None and n_rows < _MIN_ROWS):
            return None
        with self._mutex:
            if self._rounded is None:
                self._rounded = RoundedCentroids(self._centroids)
            return self._rounded


class RoundedCentroids:
    """Centroids rounded to int8 with one scale for all.

    Args:
        centroids: (n, dim) float32, finite, n at least 2.
        deviations: standard deviations of the sum of rounding errors that are allowed for.
    """

    def __init__(self, centroids: Float32Array, deviations: float = _DEVIATIONS) -> None:
        self._centroids = centroids
        self._deviations = deviations
        self._scale = max(float(np.abs(centroids).max()) / 127, _LEAST_SCALE)
        values = np.rint(centroids / np.float32(self._scale))
        self._products = Int8Products(values.astype(np.int8))
        lost = centroids - values * np.float32(self._scale)
        self._n_block = max(16, _SCORES // len(centroids))
        # variances of the difference of two scores: for a row of length 1, and for one with a scale of 1
        self._of_length = 2 * float(np.einsum("ij,ij->i", lost, lost).max()) / centroids.shape[1]
        self._of_scale = 2 * float(np.einsum("ij,ij->i", centroids, centroids).max()) / 12
        self._halves = np.einsum("ij,ij->i", centroids, centroids) / np.float32(2 * self._scale)

    @staticmethod
    def pays(n_centroids: int, dim: int) -> bool:
        """Return whether int8 products with that many centroids are faster than float32 products on this CPU."""
        return n_centroids >= _MIN_CENTROIDS and dim >= _MIN_DIM and has_fast_int8()

    def find_best(self, vectors: Float32Array) -> tuple[Int64Array, BoolArray]:
        """Find the centroids with the largest inner products.

        Args:
            vectors: (n, dim) float32.

        Returns:
            (n,) int64 numbers of centroids, and (n,) bool, whether so many others may be better that none was
            compared in float32.
        """
        best, is_open = np.empty(len(vectors), np.int64), np.zeros(len(vectors), bool)
        all_scores = self._allocate_scores()
        for low in range(0, len(vectors), self._n_block):
            block = vectors[low : low + self._n_block]
            rows, scales = quantize_int8(block)
            scores = all_scores[: len(block)]
            self._products.write(rows, scores)
            numbers, lines = scores.argmax(axis=1), np.arange(len(block))
            largest = scores[lines, numbers]
            # Without the best score, the maximum of a row says whether another is close, as for few rows it is.
            scores[lines, numbers] = np.iinfo(np.int32).min
            least = largest - self._margins(block, scales)
            close = np.flatnonzero(~(scores.max(axis=1) < least))  # not `>=`, so that a margin of NaN counts
            scores[lines, numbers] = largest
            is_candidate = scores[close] >= least[close, None]
            is_many = np.count_nonzero(is_candidate, axis=1) > _MAX_CANDIDATES
            is_open[low + close[is_many]] = True
            numbers[close[~is_many]] = self._compare(block[close[~is_many]], is_candidate[~is_many])
            best[low : low + len(block)] = numbers
        return best, is_open

    def _margins(self, rows: Float32Array, scales: Float32Array) -> Float64Array:
        """Return by how much rounding may change a difference of two scores: (n,) float64, in units of scores."""
        squares = np.einsum("ij,ij->i", rows, rows).astype(np.float64)
        of_row = scales.astype(np.float64)
        deviations = np.sqrt(self._of_length * squares + self._of_scale * of_row**2)
        margins: Float64Array = self._deviations * deviations / np.maximum(of_row * self._scale, _TINY)
        return margins

    def _compare(self, rows: Float32Array, is_candidate: BoolArray) -> Int64Array:
        """Return the best of the candidates of each of (n, dim) rows by float32 products, (n,) int64."""
        lines, numbers = np.nonzero(is_candidate)
        scores = np.full(is_candidate.shape, -np.inf, np.float32)
        scores[lines, numbers] = np.einsum("ij,ij->i", rows[lines], self._centroids[numbers])
        best: Int64Array = scores.argmax(axis=1)
        return best

    def find_nearest(self, vectors: Float32Array) -> Int64Array:
        """Return the (n,) int64 numbers of the centroids with about the smallest Euclidean distances."""
        nearest = np.empty(len(vectors), np.int64)
        all_scores = self._allocate_scores()
        all_lengths = np.empty(all_scores.shape, np.float32)
        for low in range(0, len(vectors), self._n_block):
            rows, scales = quantize_int8(vectors[low : low + self._n_block])
            inverse = 1 / np.maximum(scales, np.float32(_LEAST_SCALE))
            scores, lengths = all_scores[: len(rows)], all_lengths[: len(rows)]
            self._products.write(rows, scores)
            np.multiply.outer(inverse, self._halves, out=lengths)
            np.subtract(scores, lengths, out=lengths, dtype=np.float32, casting="same_kind")
            nearest[low : low + len(rows)] = lengths.argmax(axis=1)
        return nearest

    def _allocate_scores(self) -> Int32Array:
        """Return memory for the scores of a block."""
        return np.empty((self._n_block, len(self._centroids)), np.int32)
