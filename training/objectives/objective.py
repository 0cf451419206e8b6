"""The interface of objectives, which the training loop calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Objective", "StepTargets", "TeacherScores", "Use"]


@dataclass(frozen=True, slots=True)
class TeacherScores:
    """Scores that a teacher gives, without gradient.

    Attributes:
        documents: (n_queries, n_documents) float32.
        rows: (n_queries, n_rows) float32, the inner product with each row of each document, in the order of
            `DocumentRows`; None unless the teacher makes the rows that the student makes.
        row_counts: the number of rows of each document; none without rows.
    """

    documents: torch.Tensor
    rows: torch.Tensor | None = None
    row_counts: tuple[int, ...] = ()

    def to(self, device: torch.device) -> TeacherScores:
        """The same scores on a device."""
        rows = None if self.rows is None else self.rows.to(device)
        return TeacherScores(self.documents.to(device), rows, self.row_counts)


@dataclass(frozen=True, slots=True)
class StepTargets:
    """Targets that the vectors of one step are compared with.

    Attributes:
        targets: (n_queries,) int64, the column of each query's document.
        relevant: (n_queries, n_documents) bool, the known relevant documents, targets included.
        documents: (n_documents,) int64, numbers of the documents in the collection of the step's source;
            objectives with a fixed document side (stored codes) find them by it.
        source: name of the step's source of data.
        teacher_scores: those of each teacher by name.
        positives: for each query the numbers of all documents known to be relevant, in the batch or not.
        examples: (n_queries,) int64, numbers of the queries in that collection.
        original_queries: (n_queries, dim) float32, the queries' vectors before training; None unless the objective
            compares them.
    """

    targets: torch.Tensor
    relevant: torch.Tensor
    documents: torch.Tensor
    source: str
    teacher_scores: Mapping[str, TeacherScores]
    positives: tuple[torch.Tensor, ...] = ()
    examples: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    original_queries: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """Settings for making vectors with the trained encoder, as written to a checkpoint's quarry.json.

    Attributes:
        pooling: the pooling of queries: ``mean``, ``cls`` or ``aggretriever``.
        normalize: whether vectors have L2 norm 1.
        beta: inverse temperature of the softmax aggregation, None for the maximum.
        representation: name of the engine's representation of documents.
        representation_settings: its settings, such as the length of passages.
    """

    pooling: str
    normalize: bool
    beta: float | None
    representation: str
    representation_settings: Mapping[str, int] = field(default_factory=dict)


class Objective(Protocol):
    """Makes vectors of token vectors, and a loss of vectors.

    Vectors and loss are separate, so that the loop can cache gradients: it makes the vectors of a large batch
    chunk by chunk, takes the gradient of the loss with respect to all vectors, and goes through the chunks
    again. So `loss` depends on the texts only through its arguments, and the vectors of a text on that text
    alone.

    An objective may have parameters of its own, for `represent_*` (a projection) or for `loss` (codebooks).

    Attributes:
        encodes_documents: False when documents have fixed vectors or codes: the loop then encodes queries only,
            and `loss` is called with no rows.
    """

    @property
    def encodes_documents(self) -> bool: ...  # noqa: D102

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """The vectors of queries: (n_texts, dim) from (n_texts, longest, n_hidden) last hidden states."""
        ...

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """The rows of documents from their last hidden states.

        Settings may change with the step; without a step they are those that a checkpoint states.
        """
        ...

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        """The (n_queries, n_documents) scores that the loss is made of."""
        ...

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The terms of the loss by name, weights applied: their sum is minimized."""
        ...

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """Parameters of its own by name, each with the factor of the learning rate that it is trained with."""
        ...

    def use(self) -> Use:
        """Values to write into the checkpoint."""
        ...

    def save(self, folder: Path) -> dict[str, object]:
        """Write files of its own into the folder of a checkpoint (layers of a head, a quantizer).

        Returns:
            The members of quarry.json that say how to use them.
        """
        ...
