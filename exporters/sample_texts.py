"""Real texts that are on every machine: what parity is measured on when nothing better is given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from itertools import islice

__all__ = ["sample_texts"]

_MODULES = (
    "argparse", "ast", "bisect", "calendar", "collections", "configparser", "csv", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "heapq", "inspect", "json", "logging", "mailbox", "optparse",
    "os", "pathlib", "pickle", "pprint", "queue", "random", "shutil", "socket", "statistics", "string",
    "subprocess", "tarfile", "tempfile", "textwrap", "threading", "tokenize", "traceback", "typing", "unittest",
    "urllib.parse", "uuid", "warnings", "weakref", "xml.etree.ElementTree", "zipfile",
)  # fmt: skip

_LEAST_CHARACTERS = 80


def sample_texts(n_texts: int = 200) -> list[str]:
    """Return docstrings of the standard library: English prose with code, 20 to some 1,000 tokens each."""
    return list(islice(_docstrings(), n_texts))


def _docstrings() -> Iterator[str]:
    for name in _MODULES:
        module = importlib.import_module(name)
        members = [member for _, member in inspect.getmembers(module, inspect.isroutine)]
        for thing in (module, *members):
            text = inspect.getdoc(thing)
            if text and len(text) >= _LEAST_CHARACTERS:
                yield text
