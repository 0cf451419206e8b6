"""Several sources of batches, mixed by weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quarry.formats.errors import InvalidSetting
from quarry.training.data.batches import Batch, BatchSource

__all__ = ["Mixture"]


class Mixture:
    """Chooses the source of every step, so that after any number of steps each had its share.

    A step goes to the source that is furthest behind its share of the steps so far, the earlier of equals: no
    randomness, and the choice depends on the number of the step alone.

    Args:
        sources: what to draw batches from.
        weights: the share of each, above 0; they need not add up to 1.

    Raises:
        InvalidSetting: no source, or a weight that is not above 0.
    """

    def __init__(self, sources: Sequence[BatchSource], weights: Sequence[float]) -> None:
        if not sources or len(sources) != len(weights) or not min(weights) > 0:
            raise InvalidSetting(
                "sources cannot be mixed", expected="one at least, weights above 0", actual=list(weights)
            )
        self._sources = list(sources)
        self._shares = np.array(weights, np.float64) / sum(weights)
        self._counts = np.zeros(len(sources), np.int64)
        self._chosen: list[tuple[int, int]] = []

    @property
    def sources(self) -> list[BatchSource]:
        """The sources that are mixed."""
        return self._sources

    def batch(self, step: int) -> Batch:
        """The batch of a step, from 0: the same one every time."""
        while len(self._chosen) <= step:
            behind = self._shares * (len(self._chosen) + 1) - self._counts
            source = int(behind.argmax())
            self._chosen.append((source, int(self._counts[source])))
            self._counts[source] += 1
        source, number = self._chosen[step]
        return self._sources[source].batch(number)
