"""Scores of the centroids of a segment as stored: int8, float16, or as codes only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, lru_cache, partial
from typing import TypeAlias, cast

import numpy as np

from quarry.engine.scoring.simd import simsimd
from quarry.formats.arrays import (
    Float16Array,
    Float32Array,
    Float64Array,
    Int8Array,
    Int64Array,
    UInt8Array,
    UInt32Array,
)
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = [
    "BASE",
    "LARGEST_HALF_SQUARE",
    "CodeLengths",
    "Float16Query",
    "Int8Query",
    "Scorer",
    "StoredVectors",
    "decode_codes",
    "decode_vectors",
    "has_float32_sums",
    "int8_query",
    "lengths_bytes",
    "lengths_of",
    "mean_share",
    "rotate_back",
    "unpack_codes",
]

_DECODED_AT_ONCE = 4096  # rows
_COLUMNS = 4096  # of vectors that are summed at a time


class CodeLengths:
    """Lengths of the decoded vectors of a segment, each computed when it is first needed, and kept.

    A length does not depend on the rows that it is computed with, so threads that compute it at the same time
    write the same value.

    Args:
        quantizer: the quantizer of the codes.
        n_rows: number of rows of the segment.
    """

    def __init__(self, quantizer: Quantizer, n_rows: int) -> None:
        self._quantizer = quantizer
        self._lengths = np.zeros(n_rows, np.float32)  # 0: not computed yet; memory is taken by what is written

    def of(self, rows: Int64Array, lists: Int64Array | None, codes: UInt8Array) -> Float32Array:
        """Return the lengths of rows: (n,) float32, above 0.

        Args:
            rows: (n,) int64.
            lists: (n,) int64, the list of each row; None without residuals.
            codes: (n, M) uint8, the numbers of the sub-vectors of each row.
        """
        lengths = self._lengths[rows]
        unknown = np.flatnonzero(lengths == 0)
        for low in range(0, len(unknown), _DECODED_AT_ONCE):
            some = unknown[low : low + _DECODED_AT_ONCE]
            vectors = self._quantizer.score_codebook[np.arange(codes.shape[1]), codes[some]].reshape(len(some), -1)
            if lists is not None:
                vectors += self._quantizer.coarse[lists[some]]
            lengths[some] = self._lengths[rows[some]] = lengths_of(vectors)
        return lengths


def lengths_bytes(quantizer: Quantizer, n_rows: int) -> int:
    """Return the memory of all `CodeLengths` of a segment; 0 if decoded vectors keep their length."""
    return 4 * n_rows if quantizer.unit_length else 0


def lengths_of(vectors: Float32Array) -> Float32Array:
    """Return what (n, dim) decoded vectors are divided by to have length 1: their lengths, 1 for length 0."""
    squares = np.zeros(len(vectors), np.float32)
    # The sum of more columns of one row has other last bits than that of several rows.
    for low in range(0, vectors.shape[1], _COLUMNS):
        part = vectors[:, low : low + _COLUMNS]
        squares += np.einsum("ij,ij->i", part, part)
    lengths: Float32Array = np.sqrt(squares)
    lengths[lengths == 0] = 1
    return lengths


Scorer: TypeAlias = Callable[[Int64Array], Float32Array]
"""(n,) rows -> (n,) float32 scores for one query."""


LARGEST_HALF_SQUARE = float(np.finfo(np.float32).max) / 4
"""Larger halves of squared distances are taken as this one, so that all scores are finite."""

_RECENT_QUERIES = 64  # that threads may be searching for at the same time; 6 KB each with 768 dimensions
_BATCH_ROWS = 4096  # that are in memory as float64 at once
_SHARE_OF_ERROR = 0.4  # five collections in codes of 8 and 24 bytes: bench/README.md, trained encoders


def mean_share(segment: OpenSegment) -> float:
    """Return the share that the mean of the scores of all centroids has in the score of a document.

    Decoded vectors have errors, and the best of several scores is likely to be one with a large error. The vectors
    of a document are alike, so their mean score helps, the more the larger the errors are. The share is .4 times
    the quantization error of the rows that the quantizer was trained on, up to .4. It is 0 if the vectors
    themselves are stored, for codes of vectors of other lengths than 1, and if no error was recorded.
    """
    quantizer = segment.quantizer
    if segment.reader.centroids.kind != "none" or quantizer is None:
        return 0.0
    if not quantizer.unit_length or quantizer.fit is None:
        return 0.0
    return _SHARE_OF_ERROR * min(1.0, quantizer.fit.code_error)


class StoredVectors:
    """The centroids of one segment, of any storage type."""

    def __init__(self, segment: OpenSegment) -> None:
        self._table = segment.reader.centroids
        self._passages = segment.reader.passages
        self._lists = segment.reader.lists
        self._quantizer = segment.quantizer
        self._distance_dim = segment.distance_dim

    @property
    def largest_norm(self) -> float:
        """An upper bound of the norms of all vectors, up to what codes without a common length add to them."""
        is_scaled = self._table.kind == "none" and self._quantizer is not None and self._quantizer.unit_length
        return max(self._table.largest_norm, 1.0) if is_scaled else self._table.largest_norm

    def scores(self, query: Float32Array, rows: Int64Array) -> Float32Array:
        """Return the scores of the stored centroids `rows` for a (dim,) float32 query: (n,) float32.

        These are final scores: the query in full precision against the vectors as stored. They are inner products,
        or for Euclidean distances minus half of the squared distance.
        """
        return self.scorer(query)(rows)

    def scorer(self, query: Float32Array) -> Scorer:
        """Return a function that computes `scores` for one query, which is prepared once."""
        if self._distance_dim is not None:
            return partial(self._distance_scores, query[: self._distance_dim])
        if self._table.kind == "none":
            return self._code_scorer(query)
        if self._table.kind == "float16":
            return partial(self._float16_scores, query)
        return partial(self._int8_scores, int8_query(query))

    def _distance_scores(self, query: Float32Array, rows: Int64Array) -> Float32Array:
        wide, scores = query.astype(np.float64), np.empty(len(rows), np.float32)
        for low in range(0, len(rows), _BATCH_ROWS):
            differences = self.vectors(rows[low : low + _BATCH_ROWS])[:, : len(query)] - wide
            squares = np.einsum("ij,ij->i", differences, differences)
            scores[low : low + _BATCH_ROWS] = -np.minimum(squares / 2, LARGEST_HALF_SQUARE)
        return scores

    def _int8_scores(self, query: Int8Query, rows: Int64Array) -> Float32Array:
        values, scales = self._table.stored(rows)
        return query.scores(cast(Int8Array, values), scales)

    def _float16_scores(self, query: Float32Array, rows: Int64Array) -> Float32Array:
        """Score rows without a matrix product, whose last bits would depend on the number of rows."""
        scores: Float32Array = np.einsum("ij,j->i", self._table.stored(rows)[0].astype(np.float32), query)
        return scores

    def vectors(self, rows: Int64Array) -> Float32Array:
        """Return the stored centroids `rows` as (n, dim) float32; codes are decoded and rotated back."""
        if self._table.kind != "none":
            values, scales = self._table.stored(rows)
            return values.astype(np.float32) * scales[:, None]
        assert self._lists is not None
        quantizer, codes = self._required_quantizer(), self._lists.codes()[self._places[rows]]
        return rotate_back(quantizer, decode_vectors(quantizer, self._list_numbers(rows), codes))

    def of_document(self, document: int) -> Float32Array:
        """Return all centroids of a document, those of its passages in their order: (n, dim) float32."""
        first, stop = self._passages.of_documents(np.array([document]))
        rows, _ = self._table.rows_of(np.arange(first[0], stop[0]))
        return self.vectors(rows)

    def _code_scorer(self, query: Float32Array) -> Scorer:
        """Prepare scores of codes by asymmetric distance computation: a table lookup for each sub-quantizer."""
        quantizer = self._required_quantizer()
        rotated = query if quantizer.rotation is None else quantizer.rotation @ query
        n_sub, _, dsub = quantizer.score_codebook.shape
        table = np.einsum("mkd,md->mk", quantizer.score_codebook, rotated.reshape(n_sub, dsub))
        list_scores: Float32Array | None = (
            (quantizer.coarse @ rotated).astype(np.float32) if quantizer.by_residual else None
        )
        return partial(self._code_scores, table, list_scores)

    def _code_scores(
        self, table: Float32Array, list_scores: Float32Array | None, rows: Int64Array
    ) -> Float32Array:
        codes, subs = self._codes(rows), np.arange(len(table))
        scores: Float32Array = table[subs, codes].sum(axis=1, dtype=np.float32)
        lists = None if list_scores is None else self._list_numbers(rows)
        if list_scores is not None:
            scores += list_scores[lists]
        if self._lengths is not None:
            scores /= self._lengths.of(rows, lists, codes)
        return scores

    def _codes(self, rows: Int64Array) -> UInt8Array:
        assert self._lists is not None
        return unpack_codes(self._lists.codes()[self._places[rows]], self._required_quantizer().nbits)

    def _list_numbers(self, rows: Int64Array) -> Int64Array:
        assert self._lists is not None
        return np.searchsorted(self._lists.offsets, self._places[rows], side="right") - 1

    def _required_quantizer(self) -> Quantizer:
        assert self._quantizer is not None
        return self._quantizer

    @cached_property
    def _lengths(self) -> CodeLengths | None:
        """The lengths of decoded vectors; None if scores are not divided by them."""
        quantizer = self._required_quantizer()
        return CodeLengths(quantizer, self._table.n_rows) if quantizer.unit_length else None

    @cached_property
    def _places(self) -> UInt32Array:
        """The place of each row in the inverted lists: (n_rows,) uint32."""
        assert self._lists is not None
        return self._lists.places()


def decode_vectors(quantizer: Quantizer, lists: Int64Array, codes: UInt8Array) -> Float32Array:
    """Decode codes to the (n, dim) float32 vectors that are scored, in the rotated space if there is a rotation.

    Args:
        quantizer: quantizer of the codes.
        lists: (n,) int64, the list of each row.
        codes: (n, code_bytes) uint8.
    """
    vectors = decode_codes(quantizer, lists, codes)
    if quantizer.unit_length:
        vectors /= lengths_of(vectors)[:, np.newaxis]
    return vectors


def rotate_back(quantizer: Quantizer, decoded: Float32Array) -> Float32Array:
    """Return (n, dim) decoded vectors as (n, input_dim) float32, without the rotation, if there is one.

    Products are summed in float64, so that the rounded numbers do not depend on how many rows are decoded.
    """
    if quantizer.rotation is None:
        return decoded
    vectors = np.empty((len(decoded), quantizer.input_dim), np.float32)
    for low in range(0, len(decoded), _BATCH_ROWS):
        vectors[low : low + _BATCH_ROWS] = decoded[low : low + _BATCH_ROWS].astype(np.float64) @ quantizer.rotation
    return vectors


def decode_codes(quantizer: Quantizer, lists: Int64Array, codes: UInt8Array) -> Float32Array:
    """Decode codes to (n, dim) float32 vectors as stage 1 scores them, not scaled to length 1.

    Args:
        quantizer: quantizer of the codes.
        lists: (n,) int64, the list of each row.
        codes: (n, code_bytes) uint8.
    """
    book = quantizer.score_codebook
    parts = book[np.arange(len(book)), unpack_codes(codes, quantizer.nbits)]
    vectors: Float32Array = parts.reshape(len(codes), quantizer.coarse.shape[1])
    return vectors + quantizer.coarse[lists] if quantizer.by_residual else vectors


def unpack_codes(codes: UInt8Array, nbits: int) -> UInt8Array:
    """Unpack (n, code_bytes) codes to (n, M) numbers of sub-vectors."""
    if nbits == 8:
        return codes
    nibbles = np.stack([codes & 0x0F, codes >> 4], axis=2)
    return nibbles.reshape(len(codes), 2 * codes.shape[1])


BASE = 254.0
"""The value of a digit's unit in units of the next digit."""


class Int8Query:
    """A query as three int8 digits, so that integer SIMD instructions compute its exact scores of int8 rows.

    Write q / s in base 254 with balanced digits: q = s (a + b / 254 + c / 254²), s = max|q| / 127. Three int8
    inner products, exact in 32-bit integers, then give the score of an int8 centroid with an error of about
    2e-7 |q| |c|: as accurate as float32, the same on every machine, and faster than converting the centroids to
    floats. The first digit alone gives approximate scores of known error (`rounding`).

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


def int8_query(query: Float32Array) -> Int8Query:
    """Return the digits of a (dim,) float32 query, the same object for both stages and all segments."""
    return _recent_int8_query(query.tobytes())


@lru_cache(maxsize=_RECENT_QUERIES)
def _recent_int8_query(query: bytes) -> Int8Query:
    return Int8Query(np.frombuffer(query, np.float32))


def _products(digits: Int8Array, rows: Int8Array) -> Float64Array:
    """Return (n_digits, n_rows) inner products, exact integers."""
    if not len(rows):
        return np.empty((len(digits), 0))
    return np.asarray(simsimd().cdist(rows, digits, "dot")).reshape(len(rows), len(digits)).T


_UNIT = 2.0**-24  # unit roundoff of float32
_OTHER_ROUNDINGS = 8  # besides those of the products: of the scale, of the result
_UNDERFLOW = 2.0**-150 / 2.0**-24  # loss of a float32 product to underflow, for a row of the smallest float16 norm
_PROBE_DIM = 1021  # odd, so that the remainder loop at the end of a vector is tested too
_PROBE_ERROR = 1e-5  # relative, between the errors of sums in float32 and in float16


class Float16Query:
    """One query rounded to float16, so that SIMD instructions score float16 rows without converting them.

    Scores are approximate with a known error (`rounding`), if the library sums in float32. With the float16
    instructions of newer processors (AVX512-FP16, SVE) it sums in float16, without a useful error bound; then rows
    are converted and multiplied by BLAS.

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
    computed = float(np.asarray(simsimd().cdist(ones, ones, "dot")).item())
    return abs(computed - exact) <= _PROBE_ERROR * exact
