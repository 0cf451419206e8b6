"""How close together the terms of a query are in a text: a part of the score of `wording`.

BM25 counts terms wherever they are. Documents in which they follow one another as in the query, or are all in one
sentence, are relevant more often (D. Metzler and W. B. Croft, A Markov random field model for term dependencies,
2005: ordered and unordered windows).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

__all__ = ["Proximity"]

_WINDOW = 30  # successive terms of a text, about two sentences


class Proximity:
    """Scores texts by the proximity of a query's terms, from 0 to 1.

    The score is the weighted mean of two shares:

    * of the pairs of terms that follow one another in the query, those that do so in the text, in the same order;
      a pair weighs as much as its terms together; a third of the score,
    * of the terms of the query, the largest that 30 successive terms of the text have; two thirds.

    Stop words are no terms, so terms follow one another over them.

    Args:
        terms: of the query, in order.
        weights: of terms, above 0, such as inverse document frequencies; terms without one are taken to be in no
            text.
    """

    def __init__(self, terms: Sequence[str], weights: Mapping[str, float]) -> None:
        self._weights = {term: weights[term] for term in terms if term in weights}
        pairs = dict.fromkeys(pairwise(terms))
        self._pairs = {pair: sum(self._weights.get(term, 0.0) for term in pair) for pair in pairs}
        self._terms_weight = sum(self._weights.values())
        self._pairs_weight = sum(self._pairs.values())

    @property
    def is_defined(self) -> bool:
        """Whether the query has two different terms, so that texts can differ."""
        return len(self._weights) > 1

    def score(self, terms: Sequence[str]) -> float:
        """Return the score of a text, given its terms in order; 0 without a term of the query."""
        weights = self._weights
        found = [(place, term) for place, term in enumerate(terms) if term in weights]
        adjacent = {
            (before, after) for (low, before), (high, after) in pairwise(found) if high == low + 1
        } & self._pairs.keys()
        pairs = math.fsum(self._pairs[pair] for pair in adjacent)  # the same in any order
        return (pairs / self._pairs_weight + 2 * self._best_window(found) / self._terms_weight) / 3

    def _best_window(self, found: Sequence[tuple[int, str]]) -> float:
        """Return the largest weight of the different terms in a window, given the query's terms by place."""
        counts = dict.fromkeys(self._weights, 0)
        best = inside = 0.0
        first = 0
        for place, term in found:
            counts[term] += 1
            if counts[term] == 1:
                inside += self._weights[term]
            while place - found[first][0] >= _WINDOW:
                left = found[first][1]
                counts[left] -= 1
                if not counts[left]:
                    inside -= self._weights[left]
                first += 1
            best = max(best, inside)
        return min(best, self._terms_weight)
