"""Overrides of the engine's thresholds: the only place where a measurement replaces a global of the engine.

The engine decides by size whether a segment has inverted lists or a graph, and how many lists. A sweep needs other
values, for which the engine has no parameter yet. An override is valid for the rest of the process, so it is only
used in processes of a single measurement.
"""

from __future__ import annotations

from types import ModuleType

from quarry.engine.backends import hnsw
from quarry.engine.indexer import segment_builder
from quarry.engine.quantization import training

__all__ = ["replace_global", "set_graph_rows", "set_ivf_rows", "set_nlist"]

_NEVER = 1 << 40


def set_ivf_rows(n_rows: int | None) -> None:
    """Build inverted lists for segments of at least this many rows; None: never."""
    replace_global(segment_builder, "IVF_ROWS", _NEVER if n_rows is None else n_rows)
    if n_rows is not None:
        least = min(n_rows, training.MIN_TRAINING_ROWS)
        replace_global(segment_builder, "MIN_TRAINING_ROWS", least)


def set_nlist(nlist: int) -> None:
    """Train quantizers with this many lists, or one list per row if there are fewer rows."""
    replace_global(training, "nlist_for", lambda n_rows: min(nlist, n_rows))


def set_graph_rows(n_rows: int) -> None:
    """Use graphs in segments of at least this many rows."""
    replace_global(hnsw, "GRAPH_ROWS", n_rows)


def replace_global(module: ModuleType, name: str, value: object) -> None:
    """Replace a global of a module, which must exist."""
    if name not in vars(module):
        raise AttributeError(f"{module.__name__} has no {name}")
    setattr(module, name, value)
