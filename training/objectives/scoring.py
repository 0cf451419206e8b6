"""Scores of documents out of the scores of their rows, differentiable."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["DocumentRows", "normalize_rows", "score_documents"]


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """The vectors of several documents.

    Attributes:
        values: (n_rows, dim) float32.
        counts: the number of rows of each document, 1 at least; they add up to n_rows.
    """

    values: torch.Tensor
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.counts)

    @staticmethod
    def concatenate(parts: list[DocumentRows]) -> DocumentRows:
        """The documents of all parts, in order."""
        values = torch.cat([part.values for part in parts])
        return DocumentRows(values, tuple(count for part in parts for count in part.counts))


def normalize_rows(values: torch.Tensor, normalize: bool) -> torch.Tensor:
    """Scale rows to length 1 when requested; a row of zeros stays one."""
    return torch.nn.functional.normalize(values, dim=-1) if normalize else values


def score_documents(queries: torch.Tensor, documents: DocumentRows, beta: float | None) -> torch.Tensor:
    """Score every document for every query, as `quarry.engine.scoring.aggregation.aggregate` does.

    With `beta` None a document's score is the largest of its rows' inner products (Luan et al. 2021, section 3);
    otherwise it is the sum of softmax(beta * s) * s, Eq. 4-6 of Tang et al. 2021 with an inverse temperature.

    Args:
        queries: (n_queries, dim) float32.
        documents: their rows.
        beta: inverse temperature, above 0, or None.

    Returns:
        (n_queries, n_documents) float32.
    """
    scores = queries @ documents.values.T
    longest = max(documents.counts)
    if longest == 1:
        return scores
    counts = torch.tensor(documents.counts, device=scores.device)
    numbers = torch.arange(longest, device=scores.device)
    starts = counts.cumsum(0) - counts
    # A place behind a document's last row repeats that row and is masked.
    rows = starts[:, None] + torch.minimum(numbers, counts[:, None] - 1)
    is_missing = numbers >= counts[:, None]
    padded = scores[:, rows.flatten()].unflatten(1, rows.shape)
    if beta is None:
        return padded.masked_fill(is_missing, -torch.inf).amax(2)
    weights = (beta * padded).masked_fill(is_missing, -torch.inf).softmax(2)
    return (weights * padded).sum(2)
