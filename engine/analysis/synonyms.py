"""Synonyms: what else stands for words of a query, searched for together with them as one term.

A term of several alternatives, a group, has the postings of all of them together: a passage has it as often as it
has any of them, and its rarity is that of any. An alternative of several words is in the passages that have all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from quarry.engine.analysis.auto_analyzer import ALTERNATIVE_SIGN, cached_analyzer
from quarry.engine.analysis.phrases import PHRASE_SIGN, open_phrase
from quarry.engine.arguments import iterator_of, lone_surrogate, shown
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import MAX_SYNONYMS

__all__ = [
    "Entries",
    "Synonyms",
    "alternatives_of",
    "checked_synonyms",
    "open_synonyms",
    "without_groups",
]

_MAX_ALTERNATIVES = 64  # of a word
_MAX_CHARACTERS = 200  # of a text
_MAX_BYTES = 1 << 20  # of all texts: every manifest has them

Entries = tuple[tuple[str, tuple[str, ...]], ...]
"""Words with the texts that stand for them, ascending by the words."""


class Synonyms:
    """The synonyms of an index, analyzed.

    Args:
        entries: see `Entries`.
        language: of the index.
        rules: version of the rules that its documents were analyzed by.
    """

    def __init__(self, entries: Entries, language: str, rules: int) -> None:
        analyzer = cached_analyzer(language, rules)
        alternatives: dict[tuple[str, ...], dict[str, None]] = {}
        for word, others in entries:
            terms = tuple(analyzer.terms(word))
            if not terms:
                continue  # a stop word of the languages of the documents
            known = alternatives.setdefault(terms, {})
            own = (" ".join(sorted(set(each.terms(word)))) for each in analyzer.members)
            known.update(dict.fromkeys(filter(None, own)))
            for other in others:
                known.update(
                    (" ".join(sorted(each)), None) for each in open_phrase(other, language, rules).alternatives
                )
        self._groups: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for terms in sorted(alternatives, key=len, reverse=True):
            keys = {terms, *((term,) for term in terms[0].split(ALTERNATIVE_SIGN) if len(terms) == 1)}
            for key in keys:  # typing errors are corrected in one language
                self._groups.setdefault(key[0], []).append((key, ALTERNATIVE_SIGN.join(alternatives[terms])))

    def apply(self, terms: Sequence[str]) -> tuple[str, ...]:
        """Return the terms of a query with groups: in the place of a word, and after several words."""
        applied: list[str] = []
        at = 0
        while at < len(terms):
            several, group = self._longest(terms[at : at + _MAX_CHARACTERS])  # more than a key has words
            if len(several) > 1:
                applied += [self._longest([term])[1] for term in several]  # its words have alternatives, too
            applied.append(group)
            at += len(several)
        return tuple(applied)

    def group(self, term: str) -> str:
        """Return the group of a term that has alternatives by itself; of another one the term."""
        return self._longest([term])[1]

    def _longest(self, terms: Sequence[str]) -> tuple[Sequence[str], str]:
        """Return the longest key that terms begin with and its group, or the first term alone."""
        groups = self._groups.get(terms[0], ())
        return next((each for each in groups if tuple(terms[: len(each[0])]) == each[0]), (terms[:1], terms[0]))


@lru_cache(maxsize=16)
def open_synonyms(entries: Entries, language: str, rules: int) -> Synonyms | None:
    """Return the analyzed synonyms of an index, which are kept; None without any. See `Synonyms`."""
    return Synonyms(entries, language, rules) if entries else None


def alternatives_of(name: str) -> list[list[str]]:
    """Return the alternatives of a group, given its name: terms that a passage has together."""
    return [alternative.split(" ") for alternative in name.split(ALTERNATIVE_SIGN)]


def without_groups(weights: Mapping[str, float]) -> Mapping[str, float]:
    """Return the weights of terms, with those of groups given to the terms of their alternatives."""
    groups = [name for name in weights if ALTERNATIVE_SIGN in name and not name.startswith(PHRASE_SIGN)]
    if not groups:
        return weights
    terms = {term: weights[name] for name in groups for several in alternatives_of(name) for term in several}
    return {**terms, **{name: each for name, each in weights.items() if name not in groups}}


def checked_synonyms(given: object, language: str, rules: int) -> Entries:
    """Return synonyms as they are stored.

    Raises:
        InvalidSetting: they do not map words to texts, are too many, or one has no word but stop words.
    """
    if not isinstance(given, Mapping):
        raise _error("are no mapping", "a mapping of words to lists of texts", given)
    entries: dict[str, tuple[str, ...]] = {}
    for word, several in given.items():
        found = iter([several]) if isinstance(several, str) else iterator_of(several)
        others: list[Any] = [] if found is None or isinstance(several, bytes | Mapping) else list(found)
        if not 0 < len(others) <= _MAX_ALTERNATIVES:
            raise _error(f"of {shown(word)}", f"a list of 1 to {_MAX_ALTERNATIVES} texts", several)
        for text in (word, *others):
            is_text = isinstance(text, str) and len(text) <= _MAX_CHARACTERS and lone_surrogate(text) is None
            if not is_text or not open_phrase(text, language, rules).alternatives:
                expected = f"texts of up to {_MAX_CHARACTERS} characters with a word that is no stop word"
                raise _error(f"of {shown(word)}", expected, text)
        entries[word] = tuple(others)
    n_bytes = sum(len(text.encode()) for word, others in entries.items() for text in (word, *others))
    if len(entries) > MAX_SYNONYMS or n_bytes > _MAX_BYTES:
        expected = f"at most {MAX_SYNONYMS} words, and {_MAX_BYTES} bytes"
        raise _error("are too many", expected, f"{len(entries)} words, {n_bytes} bytes")
    return tuple(sorted(entries.items()))


def _error(problem: str, expected: str, actual: object) -> InvalidSetting:
    return InvalidSetting(f"synonyms {problem}", expected=expected, actual=shown(actual), setting="synonyms")
