"""Word segmentation: a text to raw words, with case and inner punctuation.

A raw word is a run of letters, digits, marks and underscores; runs joined by an apostrophe, a full stop, a hyphen
or ``::`` are one word, including a final ``++`` or ``#`` (``C++``). A run of a script without spaces between words
is one raw word (see `is_unspaced`). `split_compound` divides identifiers and compounds: ``parse_args``,
``parseArgs``, ``std::vector``, ``e-mail``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise

__all__ = [
    "INVISIBLE",
    "VOICED_MARKS",
    "find_cuts",
    "find_words",
    "is_unspaced",
    "normalize_text",
    "normalize_word",
    "split_compound",
    "split_normal",
    "split_words",
]

_JOINTS = "['.-]|::"
_WIDE_JOINTS = "['\u2019.\u2010-]|::"  # also the typographic apostrophe and hyphen
VOICED_MARKS = "\uff9e\uff9f"  # half-width letters, which normalization makes marks of the kana before them
INVISIBLE = "\u00ad\u200c\u200d"  # soft hyphen, zero-width joiners: removed from words
_PLAIN = str.maketrans({"\u2019": "'", "\u2010": "-"} | dict.fromkeys(INVISIBLE))
_SUPPLEMENTARY = "\U00010000-\U0001cfff\U0001d400-\U0001efff"  # rare scripts, letters and all; no emoji
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff"  # Hangul letters
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u303c"  # ideographic marks and numerals
    "\u3041-\u3096\u3099\u309a\u309d-\u309f"  # Hiragana
    "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Katakana
    "\u3105-\u312f\u3131-\u318e\u31a0-\u31bf"  # Bopomofo, Hangul letters
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # ideographs
    "\uac00-\ud7a3"  # Hangul syllables
    "\U00020000-\U0003fffd"  # more ideographs
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]")


def _make_pattern(characters: str, joints: str, signs: bool) -> re.Pattern[str]:
    word = f"[{characters}]+(?:(?:{joints})[{characters}]+)*"
    return re.compile(word + (f"(?:\\+\\+|#(?![{characters}]))?" if signs else ""))


_MAX_MARKS = 30  # in a row that are normalized together: the time grows with the square of their number
_NO_LETTERS = re.compile(rf"(?:[^\w\x00-\x7f]|[{VOICED_MARKS}]){{{_MAX_MARKS + 1},}}")  # \w has no marks
_NO_ASCII = re.compile(rf"[^\x00-\x7f][^\x00-\x7f]{{{_MAX_MARKS},}}")  # found first, since it is found sooner
_ASCII = "A-Za-z0-9_"
_ASCII_WORD = _make_pattern(_ASCII, _JOINTS, signs=False)
_ASCII_SIGNED = _make_pattern(_ASCII, _JOINTS, signs=True)


def split_words(text: str) -> list[str]:
    """Return the raw words of a text in order, normalized to NFKC; see also `normalize_word`."""
    return split_normal(normalize_text(text))


def normalize_text(text: str) -> str:
    """Return a text in normal form NFKC; of more than 30 marks in a row, each 30 alone (see `find_cuts`)."""
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        return text
    cuts = find_cuts(text)
    if not cuts:
        return unicodedata.normalize("NFKC", text)
    return "".join(unicodedata.normalize("NFKC", text[low:high]) for low, high in pairwise([0, *cuts, len(text)]))


def find_cuts(text: str) -> list[int]:
    """Return the positions at which a text is cut before its parts are normalized: after each 30 marks in a row.

    Normalization sorts the marks of a character, in a time that grows with the square of their number: a megabyte
    of marks takes minutes. The Stream-Safe Text Format of Unicode (UAX #15, section 13) has the same limit.
    """
    cuts: list[int] = []
    stretches = (stretch.span() for stretch in _NO_ASCII.finditer(text))
    for run in chain.from_iterable(_NO_LETTERS.finditer(text, *stretch) for stretch in stretches):
        n_marks = 0
        for place, character in enumerate(run[0], run.start()):
            if unicodedata.category(character)[0] != "M" and character not in VOICED_MARKS:
                n_marks = 0
            elif n_marks < _MAX_MARKS:
                n_marks += 1
            else:
                cuts.append(place)
                n_marks = 1
    return cuts


def split_normal(text: str) -> list[str]:
    """Return the raw words of a text in normal form NFKC, in order.

    No word contains white space, so the words of a text are those of its pieces between white space.
    """
    words: list[str] = _pattern_for(text).findall(text)
    return words


def find_words(text: str) -> Iterator[re.Match[str]]:
    """Yield the raw words of a text in normal form NFKC."""
    return _pattern_for(text).finditer(text)


def _pattern_for(text: str) -> re.Pattern[str]:
    if text.isascii():
        return _ASCII_SIGNED if "++" in text or "#" in text else _ASCII_WORD
    return _make_any_script_pattern()


def normalize_word(word: str) -> str:
    """Return a raw word with plain apostrophes and hyphens, and without invisible characters."""
    return word if word.isascii() else word.translate(_PLAIN)


def is_unspaced(word: str) -> bool:
    """Return whether a raw word is a run of a script without spaces: ideographs, kana, Hangul, Thai and others."""
    return _UNSPACED_RUN.match(word) is not None


@cache
def _make_any_script_pattern() -> re.Pattern[str]:
    """Return the pattern for texts beyond ASCII, compiled once (20 ms).

    Every range beyond 16 bits makes a pattern slower, so there are only two coarse ones.
    """
    spaced = _make_pattern("".join(_iterate_spaced_ranges()) + _SUPPLEMENTARY, _WIDE_JOINTS, signs=True)
    return re.compile(f"{spaced.pattern}|[{_UNSPACED}]+")


def _iterate_spaced_ranges() -> Iterator[str]:
    """Yield the ranges of 16-bit word characters of all other scripts: letters, digits, marks, underscore."""
    start = -1
    for code in range(0x10001):
        inside = code <= 0xFFFF and _is_spaced(chr(code))
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            yield f"{chr(start)}-{chr(code - 1)}"
            start = -1


def _is_spaced(character: str) -> bool:
    belongs = character.isalnum() or character in INVISIBLE or character == "_"
    return (belongs or unicodedata.category(character)[0] == "M") and not is_unspaced(character)


_SIGNS = "+#"
_SEPARATOR = re.compile(r"[_-]|::|(?<!\d)\.|\.(?!\d)")  # a full stop between digits is part of a number
_CASE_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])")
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}[A-Z0-9]*s\Z")
_MIN_PART_LETTERS = 3  # that one part must have for a word to be split


def split_compound(word: str) -> tuple[str, list[str]]:
    """Split a raw word at separators and at the case changes of camelCase.

    ``parse_args``, ``parse-args``, ``parseArgs`` and ``parse.args`` have the same parts and the same whole,
    ``parseargs``, so each of them matches the others and the separate words. ``U.S.A.`` has a whole and no
    parts; a number keeps its full stops; a range of numbers has parts only; ``LLM`` is a part of ``LLMs``.

    Returns:
        The word without separators, "" if that is not a useful term; and its parts, empty if the whole suffices.
    """
    body = word.rstrip(_SIGNS)
    pieces = [piece for piece in _SEPARATOR.split(body) if piece]
    parts = pieces if body.islower() else [part for piece in pieces for part in _split_case(piece)]
    whole = "".join(pieces)
    if len(body) < len(word):
        return whole + word[len(body) :], parts
    if parts == [whole] or _is_acronym(body, pieces):
        return whole, []
    return (whole if any(map(str.isalpha, whole)) else ""), parts


def _split_case(piece: str) -> list[str]:
    """Return the parts of a camelCase word that have two letters or more; the word if all of them are short."""
    if piece.islower() or piece.isupper():
        return [piece]
    if _PLURAL_ACRONYM.match(piece):
        return [piece[:-1]]
    parts = [part for part in _CASE_CHANGE.split(piece) if len(part) > 1]
    return parts if any(len(part) >= _MIN_PART_LETTERS for part in parts) else [piece]


def _is_acronym(body: str, pieces: list[str]) -> bool:
    return "." in body and all(len(piece) == 1 for piece in pieces)
