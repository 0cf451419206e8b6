"""Gradients of a loss over a large batch, encoded in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch

from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.objective import Objective, StepTargets
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["GradientCache", "draw_seed"]

T = TypeVar("T")

_QUERIES, _DOCUMENTS = 0, 1


class GradientCache:
    """Computes gradients as if the whole batch were in one graph, in the memory of one chunk (Gao et al. 2021).

    The contrastive loss couples all texts of a batch, so its graph would hold the activations of all of them. Here
    the vectors are made without a graph first, chunk by chunk; the loss gives the gradient of each vector; then
    each chunk is encoded again with a graph and its vectors' gradients are sent through it. A batch of one chunk
    is encoded once. Random draws (dropout) depend on seed, step and chunk, so both passes draw the same.

    Args:
        network: encodes texts.
        objective: makes vectors and the loss.
        chunk_size: texts encoded with a graph at a time, at least 1.
        seed: the seed of random draws.
    """

    def __init__(self, network: EncoderNetwork, objective: Objective, chunk_size: int, seed: int) -> None:
        self._network, self._objective = network, objective
        self._chunk_size, self._seed = chunk_size, seed

    def backward(
        self, queries: TokenBatch, documents: TokenBatch | None, targets: StepTargets, step: int
    ) -> dict[str, float]:
        """Add the gradients of the loss to the parameters' and return the terms of the loss.

        Args:
            queries: the queries of the step.
            documents: the documents of the step; None when the objective encodes none.
            targets: what the vectors are compared with.
            step: its number.
        """
        n_chunks = len(self._bounds(queries)) + (len(self._bounds(documents)) if documents is not None else 0)
        is_whole = n_chunks <= 1 + (documents is not None)
        with torch.set_grad_enabled(is_whole):
            query_vectors = torch.cat(list(self._query_chunks(queries, step)))
            rows = (
                DocumentRows.concatenate(list(self._row_chunks(documents, step)))
                if documents is not None
                else None
            )
        if is_whole:
            return self._loss(query_vectors, rows, targets)
        query_leaf = query_vectors.detach().requires_grad_()
        row_leaf = None if rows is None else DocumentRows(rows.values.detach().requires_grad_(), rows.counts)
        terms = self._loss(query_leaf, row_leaf, targets)
        self._send(query_leaf.grad, self._query_chunks(queries, step))
        if row_leaf is not None:
            self._send(row_leaf.values.grad, (chunk.values for chunk in self._row_chunks(documents, step)))
        return terms

    def _loss(self, queries: torch.Tensor, rows: DocumentRows | None, targets: StepTargets) -> dict[str, float]:
        terms = self._objective.loss(queries, rows, targets)
        torch.stack(list(terms.values())).sum().backward()
        return {name: float(term.detach()) for name, term in terms.items()}

    def _send(self, gradients: torch.Tensor | None, chunks: Iterator[torch.Tensor]) -> None:
        """Send the gradients of vectors through the graph of each chunk in turn."""
        first = 0
        for values in chunks:
            if gradients is not None and values.requires_grad:  # not if the network is frozen
                values.backward(gradients[first : first + len(values)])
            first += len(values)

    def _query_chunks(self, queries: TokenBatch, step: int) -> Iterator[torch.Tensor]:
        represent = self._objective.represent_queries
        yield from self._encoded(queries, _QUERIES, step, represent)

    def _row_chunks(self, documents: TokenBatch | None, step: int) -> Iterator[DocumentRows]:
        def represent(hidden: torch.Tensor, tokens: TokenBatch) -> DocumentRows:
            return self._objective.represent_documents(hidden, tokens, step)

        if documents is not None:
            yield from self._encoded(documents, _DOCUMENTS, step, represent)

    def _encoded(
        self, tokens: TokenBatch, side: int, step: int, represent: Callable[[torch.Tensor, TokenBatch], T]
    ) -> Iterator[T]:
        for low, high in self._bounds(tokens):
            torch.manual_seed(draw_seed(self._seed, step, side, low))
            part = tokens.part(low, high)
            yield represent(self._network.hidden(part), part)

    def _bounds(self, tokens: TokenBatch) -> list[tuple[int, int]]:
        size = self._chunk_size
        return [(low, min(low + size, len(tokens))) for low in range(0, len(tokens), size)]


def draw_seed(*numbers: int) -> int:
    """A seed for torch out of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
