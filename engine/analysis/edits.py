"""Texts within one edit of a word, and those of them that a stemmer may change.

An edit inserts, deletes or replaces a letter, or transposes two adjacent ones (F. Damerau, A technique for
computer detection and correction of spelling errors, 1964). A word of nine letters has about 500 texts within one
edit, most of which are their own stems: a stemmer changes only words with certain endings, which few texts have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_lowercase

__all__ = ["edited_words", "one_edit"]

# Every word of four letters or more that Snowball's stemmer changes has one of these endings.
_ENDINGS = {
    "english": (
        *("s", "y", "e", "ed", "ing", "li", "nci", "al", "er", "ator", "ion", "ism", "iti", "ogi", "ogist", "ful"),
        *("ic", "ant", "ent", "ll"),
    )
}


def one_edit(word: str) -> Iterator[str]:
    """Yield the words within one edit of an ASCII word: transpositions, deletions, insertions, replacements.

    None for another word, because its alphabet is not known. (P. Norvig, How to write a spelling corrector, 2007.)
    """
    if not word.isascii():
        return
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    yield from (head + tail[1] + tail[0] + tail[2:] for head, tail in splits if len(tail) > 1)
    yield from (head + tail[1:] for head, tail in splits if tail)
    yield from (head + letter + tail for head, tail in splits for letter in ascii_lowercase)
    yield from (head + letter + tail[1:] for head, tail in splits if tail for letter in ascii_lowercase)


def edited_words(word: str, language: str) -> list[str]:
    """Return the texts within one edit of an ASCII word, without those that are certainly their own stems.

    Args:
        word: a word of four letters or more.
        language: the language of the stemmer; only for English it is known which endings it changes.
    """
    if language not in _ENDINGS or not word.isascii():
        return list(dict.fromkeys(one_edit(word)))
    if _pattern(language).search(word):  # edits anywhere keep the ending
        is_changed = _pattern(language).search
        return [each for each in dict.fromkeys(one_edit(word)) if is_changed(each)]
    tails, longest = _edited_tails(language)
    edited: dict[str, None] = {}
    for size in range(min(longest, len(word)) + 1):
        head, tail = word[: len(word) - size], word[len(word) - size :]
        for ending in tails.get(tail, ()):
            edited[head + ending] = None
    return list(edited)


@cache
def _pattern(language: str) -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(_ENDINGS[language])})$")


@cache
def _edited_tails(language: str) -> tuple[dict[str, tuple[str, ...]], int]:
    """Return the tails of words that one edit turns into (a letter and) an ending, and the longest size.

    An edit that makes an ending of a word without one is inside of the ending, or transposes its first letter with
    the letter before it.
    """
    endings_of_tails: dict[str, dict[str, None]] = {}
    for ending in _ENDINGS[language]:
        for tail in one_edit(ending):
            endings_of_tails.setdefault(tail, {})[ending] = None
        for letter in ascii_lowercase:
            endings_of_tails.setdefault(ending[0] + letter + ending[1:], {})[letter + ending] = None
    tails = {tail: tuple(endings) for tail, endings in endings_of_tails.items()}
    return tails, max(map(len, tails))
