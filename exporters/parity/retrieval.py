"""Measures the effect of a graph's precision on a ranking."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.representation.single import Pooled
from quarry.exporters.parity.sample_texts import sample_questions
from quarry.formats.bundle.encoder import RetrievalRecord

__all__ = ["measure_retrieval"]

_COLLECTION = "docstrings"
_DEPTH = 10

Vectors = npt.NDArray[np.float32]


def measure_retrieval(exact: Encoder, variant: Encoder) -> RetrievalRecord:
    """Search docstrings of Python's library with both encoders; the queries are their first paragraphs.

    A document is one vector (`Pooled`), the search is exhaustive, and the only relevant document of a query is the
    rest of its docstring.

    Args:
        exact: the fp32 encoder.
        variant: the encoder to compare with it.
    """
    questions = sample_questions()
    ndcg, exact_ndcg = (round(_measure_ndcg(encoder, questions), 5) for encoder in (variant, exact))
    return RetrievalRecord(_COLLECTION, len(questions), ndcg, exact_ndcg)


def _measure_ndcg(encoder: Encoder, questions: list[tuple[str, str]]) -> float:
    """Return the mean nDCG@10 if the i-th text is the only relevant one for the i-th query."""
    queries, texts = zip(*questions, strict=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        documents = np.stack(list(pool.map(partial(_pool, encoder), texts)))
        query_vectors = np.stack(list(pool.map(encoder.encode_query, queries)))
    scores = query_vectors @ documents.T
    ranks = 1 + (scores > np.diagonal(scores)[:, np.newaxis]).sum(axis=1)
    return float(np.where(ranks <= _DEPTH, 1 / np.log2(1 + ranks), 0).mean())


def _pool(encoder: Encoder, text: str) -> Vectors:
    vector: Vectors = Pooled().represent(text, encoder.windows(text), encoder.normalize).values[0]
    return vector
