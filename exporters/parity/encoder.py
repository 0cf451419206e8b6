"""Compares an exported encoder with the fp32 graph of the same weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.formats.bundle.encoder import LEAST_MEAN_COSINE, ParityRecord
from quarry.formats.errors import InvalidSetting

__all__ = ["LEAST_MEAN_COSINES", "check_parity", "cut_query", "measure_parity", "pool_vector"]

LEAST_MEAN_COSINES: Mapping[str, float] = {"fp32": 0.9999, "fp16": 0.999, "int8-weights": 0.99}
"""A lower mean cosine is refused; other precisions: `quarry.formats.bundle.encoder.LEAST_MEAN_COSINE`."""

_QUERY_CHARACTERS = 64

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The cosines of one text's token vectors and pooled vectors."""

    text: str
    tokens: Vectors
    pooled: Vectors


def measure_parity(exact: Encoder, variant: Encoder, texts: Iterable[str]) -> tuple[ParityRecord, str]:
    """Compare two encoders on texts: token and pooled vectors of documents, and the texts' beginnings as queries.

    Args:
        exact: the fp32 encoder.
        variant: the encoder to compare with it.
        texts: real texts; texts without tokens are ignored.

    Returns:
        The cosines, and the text whose token vectors differ most.

    Raises:
        InvalidSetting: no text has a token.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compared = [found for found in pool.map(partial(_compare, exact, variant), texts) if len(found.pooled)]
    if not compared:
        raise InvalidSetting("parity needs at least one text with a token")
    tokens, pooled = (
        np.concatenate([getattr(found, kind) for found in compared]) for kind in ("tokens", "pooled")
    )
    values = (tokens.mean(), tokens.min(), pooled.mean(), pooled.min())
    record = ParityRecord(len(compared), *(round(float(value), 5) for value in values))
    return record, min(compared, key=lambda found: float(found.tokens.min())).text


def check_parity(record: ParityRecord, worst_text: str, precision: str) -> None:
    """Refuse a variant that differs too much from fp32.

    Raises:
        InvalidSetting: a mean cosine is below `LEAST_MEAN_COSINES`; the message has the largest difference and its
            text.
    """
    least = LEAST_MEAN_COSINES.get(precision, LEAST_MEAN_COSINE)
    if not min(record.token_mean, record.pooled_mean) >= least:
        raise InvalidSetting(
            f"the exported graph differs too much from fp32, most (cosine {record.token_min:.4f}) "
            f"in a token of {worst_text[:200]!r}",
            expected=f"mean cosines of at least {least}",
            actual=f"tokens {record.token_mean:.4f}, pooled {record.pooled_mean:.4f}",
        )


def cut_query(text: str) -> str:
    """Return the beginning of a text, which is used as a query."""
    return text.strip()[:_QUERY_CHARACTERS]


def pool_vector(window: TokenVectors) -> Vectors:
    """Return the pooled vector of a window, or the mean of its tokens if the encoder has no pooled vector."""
    return window.text_mean if window.pooled is None else window.pooled


def _compare(exact: Encoder, variant: Encoder, text: str) -> _Comparison:
    tokens: list[Vectors] = []
    pooled: list[Vectors] = []
    for one, other in zip(exact.windows(text), variant.windows(text), strict=True):
        pooled.append(_compute_cosines(*(pool_vector(window)[np.newaxis] for window in (one, other))))
        tokens.append(
            _compute_cosines(one.values, other.values) if one.values.size and other.values.size else pooled[-1]
        )
    if not pooled:
        return _Comparison(text, *([np.empty(0, np.float32)] * 2))
    queries = [encoder.encode_query(cut_query(text))[np.newaxis] for encoder in (exact, variant)]
    return _Comparison(text, np.concatenate(tokens), np.concatenate([*pooled, _compute_cosines(*queries)]))


def _compute_cosines(one: Vectors, other: Vectors) -> Vectors:
    """Return the cosines of rows, NaN for rows that are not finite."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: Vectors = np.einsum("ij,ij->i", one, other) / np.maximum(norms, np.float32(1e-12))
    return cosines
