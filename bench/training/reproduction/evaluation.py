"""A collection that trained networks are measured on, encoded by the objective they were trained for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from bench.data.collections import Collection
from bench.training.reproduction.ranks import Ranks, rank_relevant, relevant_columns
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher, TokenBatch
from quarry.training.objectives.objective import Objective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Evaluation", "Scorer"]

_TEXTS_AT_ONCE = 64
_QUERIES_AT_ONCE = 256

Scorer = Callable[[slice], torch.Tensor]
"""Scores of all documents, (n, n_documents) float, for a run of queries."""


@dataclass(frozen=True)
class Evaluation:
    """Queries and documents to search, cut to a number of tokens.

    Attributes:
        collection: documents, queries and judgments.
        query_tokens: most tokens of a query, special tokens included.
        document_tokens: most tokens of a document.
    """

    collection: Collection
    query_tokens: int
    document_tokens: int

    @cached_property
    def relevant(self) -> list[list[int]]:
        """The numbers of the relevant documents of each query."""
        collection = self.collection
        return relevant_columns(collection.qrels, list(collection.queries), list(collection.documents))

    def encode_queries(self, network: EncoderNetwork, objective: Objective) -> torch.Tensor:
        """The vectors of all queries: (n_queries, dim) float32."""
        batcher = TextBatcher(network.tokenizer_path, "", self.query_tokens)
        texts = list(self.collection.queries.values())
        order, parts = [], []
        with torch.no_grad():
            for numbers, tokens, hidden in _encoded(network, batcher, texts):
                order += numbers
                parts.append(objective.represent_queries(hidden, tokens))
        return torch.cat(parts)[np.argsort(order)]

    def encode_documents(self, network: EncoderNetwork, objective: Objective) -> DocumentRows:
        """The rows of all documents."""
        batcher = TextBatcher(network.tokenizer_path, "", self.document_tokens)
        texts = list(self.collection.documents.values())
        rows: list[torch.Tensor | None] = [None] * len(texts)
        with torch.no_grad():
            for numbers, tokens, hidden in _encoded(network, batcher, texts):
                found = objective.represent_documents(hidden, tokens, None)
                for number, own in zip(numbers, found.values.split(list(found.counts)), strict=True):
                    rows[number] = own
        whole = [own for own in rows if own is not None]
        return DocumentRows(torch.cat(whole), tuple(map(len, whole)))

    def rank(self, score: Scorer) -> Ranks:
        """Rank the first relevant document of each query.

        Args:
            score: of all documents, in the order of the collection, for some of its queries.
        """
        parts = []
        with torch.no_grad():
            for low in range(0, len(self.relevant), _QUERIES_AT_ONCE):
                own = slice(low, low + _QUERIES_AT_ONCE)
                parts.append(rank_relevant(score(own), self.relevant[own]))
        return np.concatenate(parts)


def _encoded(
    network: EncoderNetwork, batcher: TextBatcher, texts: Sequence[str]
) -> Iterator[tuple[list[int], TokenBatch, torch.Tensor]]:
    """Yield batches of texts of similar length: their numbers, tokens and last hidden states."""
    by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    network.model.eval()
    for low in range(0, len(texts), _TEXTS_AT_ONCE):
        numbers = by_length[low : low + _TEXTS_AT_ONCE]
        tokens = batcher.batch([texts[number] for number in numbers])
        yield numbers, tokens, network.hidden(tokens)
