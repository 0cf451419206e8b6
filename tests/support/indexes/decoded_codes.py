"""Decodes and scores the codes of a segment in float64, step by step as the specification of the files says."""

from __future__ import annotations

import numpy as np


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
