"""Real texts that are on every machine: what parity is measured on when nothing better is given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from itertools import islice

__all__ = ["sample_pairs", "sample_questions", "sample_texts"]

_MODULES = (
    "argparse", "ast", "bisect", "calendar", "collections", "configparser", "csv", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "heapq", "inspect", "json", "logging", "mailbox", "optparse",
    "os", "pathlib", "pickle", "pprint", "queue", "random", "shutil", "socket", "statistics", "string",
    "subprocess", "tarfile", "tempfile", "textwrap", "threading", "tokenize", "traceback", "typing", "unittest",
    "urllib.parse", "uuid", "warnings", "weakref", "xml.etree.ElementTree", "zipfile",
)  # fmt: skip

_LEAST_CHARACTERS = 80
_MOST_CHARACTERS = 1000  # of a pair's text: a few long ones would take most of the time
_SHORT_CHARACTERS = 300
_N_QUERIES = 40
_N_QUESTIONS = 80


def sample_texts(n_texts: int = 200) -> list[str]:
    """Return docstrings of the standard library: English prose with code, 20 to some 1,000 tokens each."""
    return list(islice(_docstrings(), n_texts))


def sample_questions() -> list[tuple[str, str]]:
    """Return 80 docstrings taken apart: the first paragraph, and the start of the rest, which answers it."""
    halves = _halves(_SHORT_CHARACTERS)
    step = len(halves) // _N_QUESTIONS
    return halves[: step * _N_QUESTIONS : step]


def sample_pairs() -> list[tuple[str, str]]:
    """Return 120 (query, text) pairs made of docstrings.

    First lines, each with the start of its own rest, with that of its neighbour and with that of one far away:
    some texts answer their query, some are about the same module, some are about something else.
    """
    halves = _halves(_MOST_CHARACTERS)
    step = len(halves) // _N_QUERIES
    return [
        (halves[i * step][0], halves[(i * step + distance) % len(halves)][1])
        for i in range(_N_QUERIES)
        for distance in (0, 1, len(halves) // 2)
    ]


def _halves(n_characters: int) -> list[tuple[str, str]]:
    """First paragraphs, each in one line, with the first characters of what follows.

    No two are the same, nor two of what follows: which of them ranks first would be chance. How many docstrings
    say the same differs between versions of Python.
    """
    heads: dict[str, str] = {}
    for text in _docstrings():
        head, _, rest = text.partition("\n\n")
        if len(rest) >= _LEAST_CHARACTERS:
            heads.setdefault(" ".join(head.split()), rest[:n_characters])
    return [(head, rest) for rest, head in {rest: head for head, rest in heads.items()}.items()]


def _docstrings() -> Iterator[str]:
    for name in _MODULES:
        module = importlib.import_module(name)
        members = [member for _, member in inspect.getmembers(module, inspect.isroutine)]
        for thing in (module, *members):
            text = inspect.getdoc(thing)
            if text and len(text) >= _LEAST_CHARACTERS:
                yield text
