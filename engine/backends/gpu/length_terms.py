"""Tables of what each sub-vector of a code adds to the squared length of a decoded vector."""

from __future__ import annotations

import numpy as np

from quarry.formats.arrays import Float32Array
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["code_length_terms", "length_terms_bytes"]


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
