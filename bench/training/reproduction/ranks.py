"""Ranks of the first relevant documents, the measure of the reproductions, in a form that fits into a file."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Ranks", "pack_ranks", "rank_relevant", "reciprocals", "relevant_columns", "unpack_ranks"]

Ranks = npt.NDArray[np.uint8]
"""(n_queries,) uint8: the rank of each query's first relevant document; 0 if it is not among the first 10."""

_DEPTH = 10


def relevant_columns(
    qrels: Mapping[str, Mapping[str, int]], queries: Sequence[str], documents: Sequence[str]
) -> list[list[int]]:
    """The numbers of the relevant documents (judged above 0) of each query, in the order of `queries`."""
    number_of = {name: number for number, name in enumerate(documents)}
    return [[number_of[name] for name, score in qrels[query].items() if score > 0] for query in queries]


def rank_relevant(scores: torch.Tensor, relevant: Sequence[Sequence[int]]) -> Ranks:
    """Rank the first relevant document of each query.

    Documents of equal score are ranked by their numbers, ascending.

    Args:
        scores: (n_queries, n_documents) float.
        relevant: numbers of the relevant documents of each query.
    """
    ranks = np.zeros(len(scores), np.uint8)
    numbers = torch.arange(scores.shape[1])
    for row, (values, columns) in enumerate(zip(scores, relevant, strict=True)):
        before = [
            int((values > values[own]).sum() + ((values == values[own]) & (numbers < own)).sum())
            for own in columns
        ]
        best = min(before, default=_DEPTH)
        ranks[row] = best + 1 if best < _DEPTH else 0
    return ranks


def reciprocals(ranks: Ranks) -> npt.NDArray[np.float64]:
    """RR@10 of each query."""
    values: npt.NDArray[np.float64] = np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0.0)
    return values


def pack_ranks(ranks: Ranks) -> str:
    """Ranks as text: base64 of their bytes, compressed by zlib."""
    return base64.b64encode(zlib.compress(ranks.tobytes(), 9)).decode("ascii")


def unpack_ranks(text: object) -> Ranks:
    """Read what `pack_ranks` wrote."""
    return np.frombuffer(zlib.decompress(base64.b64decode(str(text))), np.uint8)
