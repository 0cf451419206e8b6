"""Decodes and scores the codes of a segment in float64, step by step as the specification of the files says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.scoring.stored_vectors import decode_vectors


def decoded_vectors(segment):
    """Return the vectors of the rows of a segment that stores codes alone: (n_rows, dim) float64."""
    quantizer, lists = segment.quantizer, segment.reader.lists
    codes, book = lists.codes(), quantizer.score_codebook.astype(np.float64)
    numbers = [codes[:, number] for number in range(codes.shape[1])]
    if quantizer.nbits == 4:
        numbers = [(codes[:, number // 2] >> (4 * (number % 2))) & 15 for number in range(len(book))]
    rotated = np.concatenate([words[number] for words, number in zip(book, numbers, strict=True)], axis=1)
    if quantizer.by_residual:
        of_lists = np.repeat(np.arange(quantizer.nlist), np.diff(lists.offsets))
        rotated += quantizer.coarse.astype(np.float64)[of_lists]
    if quantizer.unit_length:
        lengths = np.linalg.norm(rotated, axis=1, keepdims=True)
        rotated /= np.where(lengths > 0, lengths, 1)
    vectors = rotated if quantizer.rotation is None else rotated @ quantizer.rotation.astype(np.float64)
    return vectors[np.argsort(lists.rows())]


def share_of_mean(segment):
    """Return the share of the mean of a document's scores in its score; 0 if vectors are stored."""
    quantizer = segment.quantizer
    is_mixed = segment.reader.centroids.kind == "none" and quantizer.unit_length and quantizer.fit is not None
    return 0.4 * min(1, quantizer.fit.code_error) if is_mixed else 0.0


def best_and_mean(scores, offsets, share):
    """Return the scores of documents, given (..., n_rows) float64 scores of rows, with a share of their mean."""
    best = np.maximum.reduceat(scores, offsets[:-1], axis=-1)
    means = np.add.reduceat(scores, offsets[:-1], axis=-1) / np.diff(offsets)
    return (1 - share) * best + share * means


def unpacked(codes):
    """Return the numbers of sub-vectors of (n, code_bytes) codes of 4 bits, two to a byte: (n, n_sub)."""
    return np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)


def coded_and_decoded(quantizer, vectors):
    """Return the codes of vectors, one number for each sub-vector, and the vectors that they stand for."""
    lists, codes = VectorCoder(quantizer, 1).code(vectors)
    return codes if quantizer.nbits == 8 else unpacked(codes), decode_vectors(quantizer, lists, codes)


def aggregated(scores, offsets, beta, share=0.0):
    """Return the scores of documents, a share of which is the mean over their rows, one by one in float64."""
    found = []
    for low, high in pairwise(offsets):
        rows = scores[low:high].astype(np.float64)
        weights = np.exp(beta * (rows - rows.max())) if beta is not None else rows == rows.max()
        best = np.average(rows, weights=weights)
        found.append(best - share * max(0.0, best - rows.mean()))
    return np.array(found)
