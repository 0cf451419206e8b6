"""Compound words and identifiers taken apart: ``parse_args``, ``parseArgs``, ``std::vector``, ``e-mail``."""

from __future__ import annotations

import re

__all__ = ["take_apart"]

_SIGNS = "+#"
_SEPARATOR = re.compile(r"[_-]|::|(?<!\d)\.|\.(?!\d)")  # a full stop between digits is part of a number
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z][a-z])")
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}[A-Z0-9]*s\Z")
_MIN_TELLING_LETTERS = 3


def take_apart(word: str) -> tuple[str, list[str]]:
    """Take a raw word apart at separators and at the humps of camelCase.

    The parts of ``parse_args``, ``parse-args``, ``parseArgs`` and ``parse.args`` are the same, and so is their
    whole, ``parseargs``: any of them finds any other, and the words written apart. ``U.S.A.`` is one whole and
    has no parts; a number keeps its full stops; a range of numbers has parts only; ``LLM`` is a part of ``LLMs``.

    Returns:
        The word without separators, "" where that would say nothing; and its parts, none where the whole says
        it all.
    """
    body = word.rstrip(_SIGNS)
    pieces = [piece for piece in _SEPARATOR.split(body) if piece]
    parts = pieces if body.islower() else [part for piece in pieces for part in _humps(piece)]
    whole = "".join(pieces)
    if len(body) < len(word):
        return whole + word[len(body) :], parts
    if parts == [whole] or _is_acronym(body, pieces):
        return whole, []
    return (whole if any(map(str.isalpha, whole)) else ""), parts


def _humps(piece: str) -> list[str]:
    """The parts of a camelCase word of two letters or more; the word itself where none of them tells much."""
    if piece.islower() or piece.isupper():
        return [piece]
    if _PLURAL_ACRONYM.match(piece):
        return [piece[:-1]]
    parts = [part for part in _HUMP.split(piece) if len(part) > 1]
    return parts if any(len(part) >= _MIN_TELLING_LETTERS for part in parts) else [piece]


def _is_acronym(body: str, pieces: list[str]) -> bool:
    return "." in body and all(len(piece) == 1 for piece in pieces)
