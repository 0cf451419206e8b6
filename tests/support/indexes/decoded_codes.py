"""Decodes the codes of a segment in float64, step by step as the specification of the files describes it."""

from __future__ import annotations

import numpy as np


def decoded_vectors(segment):
    """Return the vectors of the rows of a segment that stores codes alone: (n_rows, dim) float64."""
    quantizer, lists = segment.quantizer, segment.reader.lists
    codes, book = lists.codes(), quantizer.score_codebook.astype(np.float64)
    halves = [(codes[:, number // 2] >> (4 * (number % 2))) & 15 for number in range(len(book))]
    rotated = np.concatenate([words[half] for words, half in zip(book, halves, strict=True)], axis=1)
    if quantizer.by_residual:
        of_lists = np.repeat(np.arange(quantizer.nlist), np.diff(lists.offsets))
        rotated += quantizer.coarse.astype(np.float64)[of_lists]
    if quantizer.unit_length:
        lengths = np.linalg.norm(rotated, axis=1, keepdims=True)
        rotated /= np.where(lengths > 0, lengths, 1)
    vectors = rotated if quantizer.rotation is None else rotated @ quantizer.rotation.astype(np.float64)
    return vectors[np.argsort(lists.rows())]
