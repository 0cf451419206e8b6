"""Scores of the centroids of a segment as they are stored: int8, float16, or as codes only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeAlias, cast

import numpy as np

from quarry.engine.scoring.int8_query import Int8Query
from quarry.formats.arrays import Float32Array, Int8Array, Int64Array, UInt8Array, UInt32Array
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = [
    "Scorer",
    "StoredVectors",
    "code_length_terms",
    "decode_codes",
    "decode_vectors",
    "length_terms_bytes",
    "unpack_codes",
]

Scorer: TypeAlias = Callable[[Int64Array], Float32Array]
"""(n,) rows -> (n,) float32 scores for one query."""


class StoredVectors:
    """The centroids of one segment, of any storage type."""

    def __init__(self, segment: OpenSegment) -> None:
        self._table = segment.reader.centroids
        self._lists = segment.reader.lists
        self._quantizer = segment.quantizer

    def scores(self, query: Float32Array, rows: Int64Array) -> Float32Array:
        """Return inner products of a (dim,) float32 query and the stored centroids `rows`: (n,) float32.

        These are final scores: the query in full precision against the vectors as stored.
        """
        return self.scorer(query)(rows)

    def scorer(self, query: Float32Array) -> Scorer:
        """Return a function that computes `scores` for one query, which is prepared once."""
        if self._table.kind == "none":
            return self._code_scorer(query)
        if self._table.kind == "float16":
            return partial(self._float16_scores, query)
        return partial(self._int8_scores, Int8Query(query))

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
        vectors = decode_vectors(quantizer, self._list_numbers(rows), codes)
        return vectors if quantizer.rotation is None else vectors @ quantizer.rotation

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
        lists = np.zeros(len(rows), np.int64)
        if list_scores is not None:
            lists = self._list_numbers(rows)
            scores += list_scores[lists]
        if self._length_terms is not None:
            squares = self._length_terms[lists[:, np.newaxis], subs, codes].sum(axis=1, dtype=np.float32)
            scores /= _to_lengths(squares)
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
    def _length_terms(self) -> Float32Array | None:
        """See `code_length_terms`; None if decoded vectors keep their length."""
        quantizer = self._required_quantizer()
        return code_length_terms(quantizer) if quantizer.unit_length else None

    @cached_property
    def _places(self) -> UInt32Array:
        """The place of each row in the inverted lists: (n_rows,) uint32."""
        assert self._lists is not None
        return self._lists.places()


def code_length_terms(quantizer: Quantizer) -> Float32Array:
    """Return what each sub-vector of a row adds to the squared length of its decoded vector.

    A row of list l with the sub-vectors c is as long as the root of the sum over m of element (l, m, c[m]): the
    squared length of a sum has twice the inner product of its parts, so no vector has to be decoded.

    Returns:
        (nlist, M, ksub) float32; without residuals (1, M, ksub), alike for all lists.
    """
    book = quantizer.score_codebook
    own: Float32Array = np.einsum("mkd,mkd->mk", book, book)[np.newaxis]
    if not quantizer.by_residual:
        return own
    parts = quantizer.coarse.reshape(quantizer.nlist, len(book), -1)
    terms = np.ascontiguousarray(np.einsum("lmd,mkd->lmk", 2 * parts, book, optimize=True))
    terms += own
    terms += np.einsum("lmd,lmd->lm", parts, parts)[:, :, np.newaxis]
    return terms


def length_terms_bytes(quantizer: Quantizer) -> int:
    """Return the memory of `code_length_terms`; 0 if decoded vectors keep their length."""
    n_tables = quantizer.nlist if quantizer.by_residual else 1
    n_sub, ksub, _ = quantizer.score_codebook.shape
    return 4 * n_tables * n_sub * ksub if quantizer.unit_length else 0


def decode_vectors(quantizer: Quantizer, lists: Int64Array, codes: UInt8Array) -> Float32Array:
    """Decode codes to the (n, dim) float32 vectors that are scored, in the rotated space if there is a rotation.

    Args:
        quantizer: quantizer of the codes.
        lists: (n,) int64, the list of each row.
        codes: (n, code_bytes) uint8.
    """
    vectors = decode_codes(quantizer, lists, codes)
    if quantizer.unit_length:
        vectors /= _to_lengths(np.einsum("ij,ij->i", vectors, vectors))[:, np.newaxis]
    return vectors


def _to_lengths(squares: Float32Array) -> Float32Array:
    """Return the lengths of vectors with some squared lengths; 1 for those of length 0."""
    lengths: Float32Array = np.sqrt(np.maximum(squares, 0))
    lengths[lengths == 0] = 1
    return lengths


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
