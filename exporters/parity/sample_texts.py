"""Real texts that every Python has: parity is measured with them if no texts are given.

They are docstrings of the standard library (`quarry.engine.bundled.stdlib_docstrings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from quarry.engine.bundled.stdlib_docstrings import stdlib_documents

__all__ = ["sample_pairs", "sample_questions", "sample_texts"]

T = TypeVar("T")

_MODULES = frozenset(
    {
        "calendar",
        "csv",
        "difflib",
        "email.message",
        "inspect",
        "logging",
        "optparse",
        "pathlib",
        "pickle",
        "random",
    }
    | {"shutil", "socket", "statistics", "textwrap", "threading", "traceback", "typing", "unittest.case"}
)

_LEAST_CHARACTERS = 80  # of a docstring that counts as a text
_MOST_CHARACTERS = 1000  # of a pair's text: scoring takes time in proportion to length
_SHORT_CHARACTERS = 300  # of the texts that answer questions
_N_QUERIES = 40
_N_QUESTIONS = 80


def sample_texts(n_texts: int = 200) -> list[str]:
    """Return docstrings of the standard library: English prose with code, 20 to some 1,000 tokens each."""
    return _sample(_load_docstrings(), n_texts)


def sample_questions() -> list[tuple[str, str]]:
    """Return 80 docstrings in two parts: the first paragraph, and the start of the rest, which answers it."""
    return _sample(_split_docstrings(_SHORT_CHARACTERS), _N_QUESTIONS)


def sample_pairs() -> list[tuple[str, str]]:
    """Return 120 (query, text) pairs made of docstrings.

    Each of 40 first paragraphs is paired with the start of its own rest, of its neighbor's rest and of a distant
    one: some texts answer their query, some are about the same module, some are about something else.
    """
    halves = _split_docstrings(_MOST_CHARACTERS)
    step = len(halves) // _N_QUERIES
    return [
        (halves[i * step][0], halves[(i * step + distance) % len(halves)][1])
        for i in range(_N_QUERIES)
        for distance in (0, 1, len(halves) // 2)
    ]


def _split_docstrings(n_characters: int) -> list[tuple[str, str]]:
    """Return first paragraphs, each in one line, with the first characters of what follows.

    First paragraphs are distinct, and so are the rests: otherwise it would be chance which of two equal texts
    ranks first. How many docstrings are equal differs between versions of Python.
    """
    heads: dict[str, str] = {}
    for text in _load_docstrings():
        head, _, rest = text.partition("\n\n")
        if len(rest) >= _LEAST_CHARACTERS:
            heads.setdefault(" ".join(head.split()), rest[:n_characters])
    return [(head, rest) for rest, head in {rest: head for head, rest in heads.items()}.items()]


@cache
def _load_docstrings() -> tuple[str, ...]:
    documents = stdlib_documents(_MODULES)
    return tuple(document["text"] for document in documents if len(document["text"]) >= _LEAST_CHARACTERS)


def _sample(values: Sequence[T], count: int) -> list[T]:
    """Take ``count`` of the values at equal distances, or all if there are fewer."""
    step = max(1, len(values) // count)
    return list(values[: step * count : step])
