"""How closely a text follows the wording of a query.

BM25 counts the stems of words wherever they are. Documents rank higher in which the words of the query are close
together, in its order, and in the form that they have in it.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from quarry.engine.analysis.words import is_unspaced
from quarry.engine.lexical.proximity import Proximity

__all__ = ["ExactWords", "Wording", "exact_words"]


class ExactWords:
    """Scores texts by the words of a query that they have in the same form, from 0 to 1.

    The score is the mean of two shares:

    * of the words of the query, weighted, those that are in the text,
    * of the pairs of words that follow one another in the query, stop words included, those that do so in the
      text.

    If only one share is defined, because the query is one word or no word has a weight, it is the score.

    Args:
        words: of the query, see `exact_words`.
        weights: of words, above 0; words without one count in pairs only.
    """

    def __init__(self, words: Sequence[str], weights: Mapping[str, float]) -> None:
        self._weights = {f" {word} ": weights[word] for word in words if word in weights}
        self._weight = math.fsum(self._weights.values())
        self._pairs = {
            f" {before} {after} ": {f" {before} ", f" {after} "} & self._weights.keys()
            for before, after in pairwise(words)
        }

    @property
    def is_defined(self) -> bool:
        """Whether the query has a word with a weight, or two words."""
        return bool(self._weights or self._pairs)

    def score(self, words: Sequence[str]) -> float:
        """Return the score of a text, given its words; the query is defined."""
        text = f" {' '.join(words)} "  # a string is searched faster than sets of its words and pairs are made
        found = {word for word in self._weights if word in text}
        shares = []
        if self._weights:
            shares.append(math.fsum(self._weights[word] for word in found) / self._weight)
        if self._pairs:
            n_found = sum(found >= weighted and pair in text for pair, weighted in self._pairs.items())
            shares.append(n_found / len(self._pairs))
        return sum(shares) / len(shares)


class Wording:
    """Scores texts by how closely they follow the wording of a query, from 0 to 1.

    The score is (3 x proximity of terms + 2 x exact words) / 5, see `Proximity` and `ExactWords`.

    Args:
        text: of the query.
        terms: of the query, in order; what a mistyped term most likely stands for in its place.
        weights: of terms, above 0, such as inverse document frequencies; terms without one are taken to be in no
            text. A word weighs as much as the rarest of its terms.
        analyze: returns the terms of a text.
    """

    def __init__(
        self,
        text: str,
        terms: Sequence[str],
        weights: Mapping[str, float],
        analyze: Callable[[str], Sequence[str]],
    ) -> None:
        self._analyze = analyze
        self._proximity = Proximity(terms, weights)
        words = exact_words(text)
        rarest = {word: max((weights.get(term, 0.0) for term in analyze(word)), default=0.0) for word in words}
        self._exact = ExactWords(words, {word: weight for word, weight in rarest.items() if weight})

    @property
    def is_defined(self) -> bool:
        """Whether the query has two different terms, so that texts can differ."""
        return self._proximity.is_defined and self._exact.is_defined

    def score(self, text: str) -> float:
        """Return the score of a text; 0 without a term of the query."""
        proximity = self._proximity.score(self._analyze(text))
        if not proximity:
            return 0.0
        return (3 * proximity + 2 * self._exact.score(exact_words(text))) / 5


def exact_words(text: str) -> list[str]:
    """Return the words of a text in order, case-folded and not stemmed.

    A word is a run of letters, digits and marks, unlike those of `quarry.engine.analysis.words` without inner
    punctuation; in scripts without spaces it is a character.
    """
    if not text.isascii():
        folded = unicodedata.normalize("NFKC", text).casefold()
        text = unicodedata.normalize("NFKC", folded)  # folding can undo it
    if text.isascii():
        return text.lower().translate(_ASCII).split()
    return text.translate(_ANY).split()


class _Separators(dict[int, str]):
    """What stands for a character, given its code: itself in words, a space for others."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character.isalnum() or unicodedata.category(character)[0] == "M":
            found = f" {character} " if is_unspaced(character) else character
        else:
            found = " "
        self[code] = found
        return found


_ANY = _Separators()
_ASCII = {code: _ANY[code] for code in range(128)}
