"""Quarry: an embeddable semantic search engine for text.

``build`` makes an index of documents, ``Engine.open`` opens one for searching and changing. Start reading with
`index_reader`, which answers searches, and `engine`, which opens and changes an index; `building` makes one, and
`options` has the options of builds, searches and open indexes. Names are imported when they are first used, so
that importing the package takes little time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from quarry.formats import errors as _errors
from quarry.formats.errors import *  # noqa: F403

if TYPE_CHECKING:
    from quarry.engine.async_engine import AsyncEngine
    from quarry.engine.boosts import Linear, Log1p, Pin, Recency, Saturation
    from quarry.engine.building.builder import BuildReport, build
    from quarry.engine.documents.document import Document
    from quarry.engine.documents.file_place import FilePlace
    from quarry.engine.encoding.encoder import Encoder, TokenVectors
    from quarry.engine.encoding.functions.function_encoder import FunctionEncoder
    from quarry.engine.encoding.opening import open_encoder
    from quarry.engine.engine import Engine
    from quarry.engine.filtering.unknown_fields import UnknownFieldWarning
    from quarry.engine.index.verification import VerifyReport
    from quarry.engine.listing.facets import Facets, FacetValue
    from quarry.engine.options import SearchOptions
    from quarry.engine.representation.base import Representation
    from quarry.engine.representation.first_m import Cls, FirstM
    from quarry.engine.representation.kmeans import KMeans
    from quarry.engine.representation.pieces import Pieces
    from quarry.engine.representation.single import Mean, Passages, Pooled
    from quarry.engine.reuse.added_indexes import AddIndexesReport
    from quarry.engine.reuse.snapshot import SnapshotReport
    from quarry.engine.search.hits.hits import Coverage, Hit, Hits, Match
    from quarry.engine.search.passages import MatchedWord, Passage
    from quarry.engine.search.reranker import Reranker
    from quarry.engine.sync import SyncReport
    from quarry.engine.thresholds import MergeLimits, Thresholds

_PLACES = {
    "AddIndexesReport": "quarry.engine.reuse.added_indexes",
    "AsyncEngine": "quarry.engine.async_engine",
    "Linear": "quarry.engine.boosts",
    "Log1p": "quarry.engine.boosts",
    "Pin": "quarry.engine.boosts",
    "Recency": "quarry.engine.boosts",
    "Saturation": "quarry.engine.boosts",
    "BuildReport": "quarry.engine.building.builder",
    "Coverage": "quarry.engine.search.hits.hits",
    "build": "quarry.engine.building.builder",
    "Document": "quarry.engine.documents.document",
    "Encoder": "quarry.engine.encoding.encoder",
    "Engine": "quarry.engine.engine",
    "FilePlace": "quarry.engine.documents.file_place",
    "FunctionEncoder": "quarry.engine.encoding.functions.function_encoder",
    "SnapshotReport": "quarry.engine.reuse.snapshot",
    "FacetValue": "quarry.engine.listing.facets",
    "Facets": "quarry.engine.listing.facets",
    "SyncReport": "quarry.engine.sync",
    "TokenVectors": "quarry.engine.encoding.encoder",
    "UnknownFieldWarning": "quarry.engine.filtering.unknown_fields",
    "VerifyReport": "quarry.engine.index.verification",
    "open_encoder": "quarry.engine.encoding.opening",
    "Hit": "quarry.engine.search.hits.hits",
    "Hits": "quarry.engine.search.hits.hits",
    "Match": "quarry.engine.search.hits.hits",
    "MatchedWord": "quarry.engine.search.passages",
    "Passage": "quarry.engine.search.passages",
    "Cls": "quarry.engine.representation.first_m",
    "FirstM": "quarry.engine.representation.first_m",
    "KMeans": "quarry.engine.representation.kmeans",
    "Mean": "quarry.engine.representation.single",
    "Passages": "quarry.engine.representation.single",
    "Pieces": "quarry.engine.representation.pieces",
    "Pooled": "quarry.engine.representation.single",
    "Representation": "quarry.engine.representation.base",
    "Reranker": "quarry.engine.search.reranker",
    "SearchOptions": "quarry.engine.options",
    "MergeLimits": "quarry.engine.thresholds",
    "Thresholds": "quarry.engine.thresholds",
}

__all__ = [  # noqa: PLE0604 - the errors are listed where they are defined
    *_errors.__all__,
    "AddIndexesReport",
    "AsyncEngine",
    "BuildReport",
    "Cls",
    "Coverage",
    "Document",
    "Encoder",
    "Engine",
    "FacetValue",
    "Facets",
    "FilePlace",
    "FirstM",
    "FunctionEncoder",
    "Hit",
    "Hits",
    "KMeans",
    "Linear",
    "Log1p",
    "Match",
    "MatchedWord",
    "Mean",
    "MergeLimits",
    "Passage",
    "Passages",
    "Pieces",
    "Pin",
    "Pooled",
    "Recency",
    "Representation",
    "Reranker",
    "Saturation",
    "SearchOptions",
    "SnapshotReport",
    "SyncReport",
    "Thresholds",
    "TokenVectors",
    "UnknownFieldWarning",
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
