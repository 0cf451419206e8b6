"""An encoder whose hits have estimates of relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from support.indexes.word_encoder import WordEncoder

from quarry.formats.bundle.relevance import LogisticModel, RelevanceModels


@dataclass(frozen=True)
class CalibratedEncoder(WordEncoder):
    """A `WordEncoder` with a calibration."""

    relevance: ClassVar[RelevanceModels] = RelevanceModels(
        {
            "hybrid": LogisticModel(-4.0, {"dense": 3.0, "share": 5.0, "spread": 2.0}),
            "dense": LogisticModel(-1.0, {"dense": 3.0, "spread": 2.0}),
            "lexical": LogisticModel(-2.0, {"share": 4.0}),
        },
        ("random",),
    )
