"""Quarry: an embeddable semantic search engine for text.

``build`` makes an index out of documents, ``Engine.open`` opens one for searching and changing. Names are
imported when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from formats import errors as _errors
from formats.errors import *  # noqa: F403

if TYPE_CHECKING:
    from engine.builder import BuildReport, build
    from engine.documents import Document
    from engine.encoder import open_encoder
    from engine.engine import Engine
    from engine.hits import Hit, Hits, Match
    from engine.representation import Cls, FirstM, KMeans, Mean, Pieces, Pooled
    from engine.verification import VerifyReport

_PLACES = {
    "BuildReport": "engine.builder",
    "build": "engine.builder",
    "Document": "engine.documents",
    "Engine": "engine.engine",
    "VerifyReport": "engine.verification",
    "open_encoder": "engine.encoder",
    "Hit": "engine.hits",
    "Hits": "engine.hits",
    "Match": "engine.hits",
    "Cls": "engine.representation",
    "FirstM": "engine.representation",
    "KMeans": "engine.representation",
    "Mean": "engine.representation",
    "Pieces": "engine.representation",
    "Pooled": "engine.representation",
}

__all__ = [  # noqa: PLE0604 - the errors are listed where they are defined
    *_errors.__all__,
    "BuildReport",
    "Cls",
    "Document",
    "Engine",
    "FirstM",
    "Hit",
    "Hits",
    "KMeans",
    "Match",
    "Mean",
    "Pieces",
    "Pooled",
    "VerifyReport",
    "build",
    "open_encoder",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("quarry-search")
    elif name in _PLACES:
        value = getattr(import_module(_PLACES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
