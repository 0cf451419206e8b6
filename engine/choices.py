"""The names that options may have, as types for type checkers and as tuples for checks."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

__all__ = [
    "FUSIONS",
    "MODES",
    "UNITS",
    "CentroidType",
    "Fusion",
    "Mode",
    "Unit",
]

Mode: TypeAlias = Literal["hybrid", "dense", "lexical"]
"""Mode of a search: fused dense and lexical scores, vectors, or terms."""

Fusion: TypeAlias = Literal["linear", "rrf"]
"""Combination of dense and lexical scores: by a weighted mean, or by reciprocal ranks."""

CentroidType: TypeAlias = Literal["int8", "float16", "none"]
"""Storage type of vectors, see `quarry.engine.options.BuildOptions`."""

Unit: TypeAlias = Literal["document", "passage"]
"""What the hits of a search are."""

MODES: tuple[Mode, ...] = get_args(Mode)
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)
UNITS: tuple[Unit, ...] = get_args(Unit)
