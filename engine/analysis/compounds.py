"""Splits compounds and identifiers into parts: ``parse_args``, ``parseArgs``, ``std::vector``, ``e-mail``."""

from __future__ import annotations

import re

__all__ = ["split_compound"]

_SIGNS = "+#"
_SEPARATOR = re.compile(r"[_-]|::|(?<!\d)\.|\.(?!\d)")  # a full stop between digits is part of a number
_CASE_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])")
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}[A-Z0-9]*s\Z")
_MIN_PART_LETTERS = 3


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
