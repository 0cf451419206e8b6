"""Objectives that score batches of documents for queries: what all representations have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.contrastive import contrastive_loss
from quarry.training.objectives.distillation import distillation_loss
from quarry.training.objectives.objective import StepTargets, Use
from quarry.training.objectives.pooling import POOLINGS, pool
from quarry.training.objectives.scoring import DocumentRows, normalize_rows, score_documents

__all__ = ["DistillationTerm", "RankingObjective", "RankingSettings"]


@dataclass(frozen=True)
class DistillationTerm:
    """One teacher's part of the loss.

    Attributes:
        teacher: its name.
        weight: of the term, above 0.
        scale: inverse temperature of the teacher's scores.
    """

    teacher: str
    weight: float
    scale: float


@dataclass(frozen=True)
class RankingSettings:
    """The settings that all representations share.

    Attributes:
        pooling: of queries, ``mean`` or ``cls``.
        normalize: whether vectors get L2 norm 1.
        scale: inverse temperature of the losses; 1 for inner products without normalization, 20 or so for cosines.
        beta: inverse temperature of the aggregation of a document's rows; None: the maximum.
        contrastive_weight: of the contrastive loss, 0 or more; 0: distillation alone, without labels.
        distillation: the teachers' terms.
    """

    pooling: str = "mean"
    normalize: bool = True
    scale: float = 20.0
    beta: float | None = None
    contrastive_weight: float = 1.0
    distillation: tuple[DistillationTerm, ...] = ()

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise InvalidSetting("unknown pooling", expected=" or ".join(POOLINGS), actual=repr(self.pooling))
        for name, value in (("scale", self.scale), ("beta", 1.0 if self.beta is None else self.beta)):
            if not 0 < value <= 1e6:
                raise InvalidSetting(f"{name} is out of range", expected="above 0, at most 1e6", actual=value)
        weights = [self.contrastive_weight, *(term.weight for term in self.distillation)]
        if min(weights) < 0 or not sum(weights) > 0:
            raise InvalidSetting("no term of the loss counts", expected="weights of 0 or more", actual=weights)


class RankingObjective(ABC):
    """An `Objective` that ranks the batch's documents; a subclass says what the rows of a document are.

    Args:
        settings: see `RankingSettings`.
    """

    encodes_documents = True

    def __init__(self, settings: RankingSettings) -> None:
        self.settings = settings

    @property
    @abstractmethod
    def representation(self) -> str:
        """Name of the engine's representation that documents have."""

    @abstractmethod
    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int) -> DocumentRows:
        """The rows of documents before normalization."""

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """Pool queries (Eq. 3 of Tang et al. 2021); see `Objective.represent_queries`."""
        pooled = pool(hidden, tokens.mask.to(hidden.device), self.settings.pooling)
        return normalize_rows(pooled, self.settings.normalize)

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int) -> DocumentRows:
        """Make the rows of documents; see `Objective.represent_documents`."""
        rows = self.document_rows(hidden, tokens, step)
        return DocumentRows(normalize_rows(rows.values, self.settings.normalize), rows.counts)

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        """Aggregate the scores of rows; see `score_documents`."""
        return score_documents(queries, documents, self.settings.beta)

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The contrastive term and one for each teacher; see `Objective.loss`."""
        if documents is None:
            raise InvalidSetting("this objective needs the rows of documents")
        scores = self.scores(queries, documents)
        terms: dict[str, torch.Tensor] = {}
        if self.settings.contrastive_weight:
            found = contrastive_loss(scores, step.targets, step.relevant, self.settings.scale)
            terms["contrastive"] = self.settings.contrastive_weight * found
        for term in self.settings.distillation:
            teacher_scores = step.teacher_scores[term.teacher]
            found = distillation_loss(scores, teacher_scores, self.settings.scale, term.scale)
            terms[f"distillation from {term.teacher}"] = term.weight * found
        return terms

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """None: everything trained is in the network."""
        return {}

    def use(self) -> Use:
        """What the checkpoint says; see `Objective.use`."""
        settings = self.settings
        return Use(settings.pooling, settings.normalize, settings.beta, self.representation)
