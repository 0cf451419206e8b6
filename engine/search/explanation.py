"""Why a document was found: the parts of its text whose centroids carry its score."""

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
    """The parts that carry the score of a document, by falling weight; those of weight 0 are left out.

    Args:
        stored: the document.
        scores: (n_centroids,) float32, the scores of its centroids.
        beta: inverse temperature of the aggregation; None (the maximum) leaves the best centroid alone.
        path: file of the document, for messages.

    Raises:
        CorruptFile: the stored spans do not fit the document's centroids.
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
