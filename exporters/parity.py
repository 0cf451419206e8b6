"""Measures how close an exported graph is to the fp32 graph it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.encoder import Encoder
from formats.encoder_bundle import ParityRecord
from formats.errors import InvalidSetting

__all__ = ["LEAST_MEAN_COSINE", "check_parity", "measure_parity"]

LEAST_MEAN_COSINE = 0.98
"""Variants of an encoder answer from one index where their mean cosines are at least this."""

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Worst:
    """The text with the token furthest off."""

    cosine: float
    text: str


def measure_parity(exact: Encoder, variant: Encoder, texts: Iterable[str]) -> tuple[ParityRecord, str]:
    """Compare two encoders on texts: token vectors as documents, pooled vectors as queries.

    Args:
        exact: the fp32 encoder.
        variant: the encoder to judge.
        texts: real ones; those without a token count for nothing.

    Returns:
        The cosines, and the text with the token furthest off.

    Raises:
        InvalidSetting: no text has a token.
    """
    token_cosines: list[Vectors] = []
    pooled_cosines: list[Vectors] = []
    worst = _Worst(2.0, "")
    for text in texts:
        pairs = list(zip(exact.windows(text), variant.windows(text), strict=True))
        for one, other in pairs:
            cosines = _cosines(one.values, other.values)
            worst = min(worst, _Worst(float(cosines.min()), text), key=lambda found: found.cosine)
            token_cosines.append(cosines)
        if pairs:
            pooled_cosines.append(
                _cosines(*(encoder.encode_query(text)[np.newaxis] for encoder in (exact, variant)))
            )
    if not pooled_cosines:
        raise InvalidSetting("parity needs at least one text with a token")
    return _record(token_cosines, pooled_cosines), worst.text


def check_parity(record: ParityRecord, worst_text: str) -> None:
    """Refuse a variant that is too far from fp32.

    Raises:
        InvalidSetting: a mean cosine is below `LEAST_MEAN_COSINE`; the message has the largest difference and
            the text that showed it.
    """
    least = min(record.token_mean, record.pooled_mean)
    if not least >= LEAST_MEAN_COSINE:
        raise InvalidSetting(
            f"the exported graph is too far from fp32: furthest off (cosine {record.token_min:.4f}) "
            f"is a token of {worst_text[:200]!r}",
            expected=f"mean cosines of at least {LEAST_MEAN_COSINE}",
            actual=f"tokens {record.token_mean:.4f}, pooled {record.pooled_mean:.4f}",
        )


def _cosines(one: Vectors, other: Vectors) -> Vectors:
    """Return the row-wise cosines, NaN where a row is not finite."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: Vectors = np.einsum("ij,ij->i", one, other) / np.maximum(norms, np.float32(1e-12))
    return cosines


def _record(tokens: Sequence[Vectors], pooled: Sequence[Vectors]) -> ParityRecord:
    all_tokens, all_pooled = np.concatenate(tokens), np.concatenate(pooled)
    values = (all_tokens.mean(), all_tokens.min(), all_pooled.mean(), all_pooled.min())
    return ParityRecord(len(pooled), *(round(float(value), 5) for value in values))
