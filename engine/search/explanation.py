"""Explains a hit: the passages whose centroids contribute to its score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.documents.document import full_text
from quarry.engine.scoring.aggregation import centroid_weights
from quarry.engine.search.hits import Match
from quarry.formats.documents.spans import unpack_spans
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import CorruptFile

__all__ = ["matches"]


def matches(
    stored: StoredDocument, scores: npt.NDArray[np.float32], beta: float | None, path: Path
) -> tuple[Match, ...]:
    """Return the passages that contribute to the score of a document, by descending weight.

    Args:
        stored: the document.
        scores: (n_centroids,) float32, the scores of its centroids.
        beta: inverse temperature of the aggregation; None (the maximum): only the best centroid contributes.
        path: file of the document, for messages.

    Raises:
        CorruptFile: the number of stored spans differs from the number of centroids.
    """
    spans = unpack_spans(stored.spans, path)
    if len(spans) != len(scores):
        raise CorruptFile("spans do not fit the centroids", path=path, expected=len(scores), actual=len(spans))
    text = full_text(stored.title, stored.text)
    weights = centroid_weights(scores, beta)
    order = np.argsort(-weights, kind="stable")
    return tuple(
        Match(
            spans=tuple(spans[number]),
            text=" … ".join(text[low:high] for low, high in spans[number]),
            score=float(scores[number]),
            weight=float(weights[number]),
        )
        for number in order[weights[order] > 0].tolist()
    )
