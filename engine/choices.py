"""The names that options may have, as types for type checkers and as tuples for checks."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

__all__ = [
    "FUSIONS",
    "MODES",
    "BackendName",
    "CentroidType",
    "Fusion",
    "Mode",
    "RepresentationName",
]

Mode: TypeAlias = Literal["hybrid", "dense", "lexical"]
"""What a search ranks by: fused dense and lexical scores, vectors, or terms."""

Fusion: TypeAlias = Literal["linear", "rrf"]
"""How dense and lexical scores are combined: by a weighted mean, or by reciprocal ranks."""

BackendName: TypeAlias = Literal["auto", "exact", "scan", "cpu_faiss", "hnsw", "gpu"]
"""How candidates are found, see `Engine.open`."""

RepresentationName: TypeAlias = Literal["pieces", "kmeans", "first_m", "mean", "cls", "pooled"]
"""How a document becomes vectors, see `build`."""

CentroidType: TypeAlias = Literal["int8", "float16", "none"]
"""How vectors are stored, see `quarry.engine.options.BuildOptions`."""

MODES: tuple[str, ...] = get_args(Mode)
FUSIONS: tuple[str, ...] = get_args(Fusion)
