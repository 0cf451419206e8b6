"""How closely a text follows the wording of a query.

BM25 counts the stems of words wherever they are. Documents rank higher in which the words of the query are close
together, in its order, and in the form that they have in it.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from quarry.engine.analysis.words import INVISIBLE, is_unspaced, normalize_text, split_words
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
        self._weights = {word: weights[word] for word in words if word in weights}
        self._words = frozenset(self._weights)
        self._weight = math.fsum(self._weights.values())
        self._pairs = frozenset(pairwise(words))

    @property
    def is_defined(self) -> bool:
        """Whether the query has a word with a weight, or two words."""
        return bool(self._words or self._pairs)

    def score(self, words: Sequence[str]) -> float:
        """Return the score of a text, given its words; the query is defined."""
        shares = []
        if self._words:
            found = self._words.intersection(words)
            shares.append(math.fsum(self._weights[word] for word in found) / self._weight)  # the same in any order
        if self._pairs:
            shares.append(len(self._pairs.intersection(pairwise(words))) / len(self._pairs))
        return sum(shares) / len(shares)


class Wording:
    """Scores texts by how closely they follow the wording of a query, from 0 to 1.

    The score is (3 x proximity of terms + 2 x exact words) / 5, see `Proximity` and `ExactWords`.

    Args:
        text: of the query, with mistyped words corrected.
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
        self._exact = ExactWords(exact_words(text), _word_weights(text, weights, analyze))

    @property
    def is_defined(self) -> bool:
        """Whether the query has two different terms with a weight, so that texts can differ."""
        return self._proximity.is_defined and self._exact.is_defined

    def score(self, text: str) -> float:
        """Return the score of a text; 0 without a term of the query, which is defined."""
        proximity = self._proximity.score(self._analyze(text))
        if not proximity:
            return 0.0
        return (3 * proximity + 2 * self._exact.score(exact_words(text))) / 5


def exact_words(text: str) -> list[str]:
    """Return the words of a text in order, case-folded and not stemmed.

    A word is a run of letters, digits and marks, without the inner punctuation of those of
    `quarry.engine.analysis.words`; in scripts without spaces it is a character.
    """
    if not text.isascii():
        text = normalize_text(normalize_text(text).casefold())  # folding can undo the normal form
    if text.isascii():
        return text.lower().translate(_ASCII).split()
    return text.translate(_ANY).split()


def _word_weights(
    text: str, weights: Mapping[str, float], analyze: Callable[[str], Sequence[str]]
) -> dict[str, float]:
    """Return the weights of the exact words of a query, given those of terms.

    A word of the analyzer, such as "3.5" or a run of ideographs, may be several exact words: all weigh as much.
    """
    found: dict[str, float] = {}
    for word in dict.fromkeys(split_words(text)):
        weight = max((weights.get(term, 0.0) for term in analyze(word)), default=0.0)
        if weight:
            for part in exact_words(word):
                found[part] = max(found.get(part, 0.0), weight)
    return found


class _Separators(dict[int, str]):
    """What stands for a character, given its code: itself in words, nothing if invisible, a space for others."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in INVISIBLE or character in _VARIANTS:
            found = ""
        elif character.isalnum() or unicodedata.category(character)[0] == "M":
            found = f" {character} " if is_unspaced(character) else character
        else:
            found = " "
        if len(self) < _N_CACHED:
            self[code] = found
        return found


_VARIANTS = "".join(map(chr, range(0xFE00, 0xFE10)))  # select a form of the character before, such as an emoji
_N_CACHED = 1 << 14
_ANY = _Separators()
_ASCII = {code: _ANY[code] for code in range(128)}
