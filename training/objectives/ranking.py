"""Objectives that score batches of documents for queries: what all representations have in common, pooling too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.losses import contrastive_loss, distillation_loss, row_distillation_loss
from quarry.training.objectives.objective import StepTargets, TeacherScores, Use
from quarry.training.objectives.scoring import DocumentRows, normalize_rows, score_documents

__all__ = [
    "POOLINGS",
    "DistillationTerm",
    "RankingObjective",
    "RankingSettings",
    "average_groups",
    "pool",
    "select_text_tokens",
]

POOLINGS = ("mean", "cls")


def pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Pool texts: the mean over all tokens, special ones included, or the vector of the first ([CLS]).

    Args:
        hidden: (n_texts, longest, dim) float32.
        mask: (n_texts, longest) int64, 0 for padding.
        pooling: one of `POOLINGS`.

    Returns:
        (n_texts, dim) float32.
    """
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask[:, :, None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def select_text_tokens(hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
    """Return the vectors of the texts' own tokens, without special ones, text after text: (n_tokens, dim)."""
    low = tokens.n_before
    parts = [states[low : low + len(text.ids)] for states, text in zip(hidden, tokens.texts, strict=True)]
    return torch.cat(parts)


def average_groups(values: torch.Tensor, groups: torch.Tensor, n_groups: int) -> torch.Tensor:
    """Average the rows of each group.

    Args:
        values: (n_rows, dim) float32.
        groups: (n_rows,) int64 below n_groups; every group has a row.
        n_groups: number of groups.

    Returns:
        (n_groups, dim) float32.
    """
    sums = values.new_zeros((n_groups, values.shape[1])).index_add(0, groups, values)
    counts = torch.bincount(groups, minlength=n_groups)
    return sums / counts[:, None].to(values.dtype)


@dataclass(frozen=True)
class DistillationTerm:
    """One teacher's part of the loss.

    Attributes:
        teacher: its name.
        weight: the weight of the term, above 0.
        scale: inverse temperature of the teacher's scores.
        row_weight: the weight of the divergence from its scores of single rows, 0 or more.
    """

    teacher: str
    weight: float
    scale: float
    row_weight: float = 0.0


@dataclass(frozen=True)
class RankingSettings:
    """The settings that all representations share.

    Attributes:
        pooling: the pooling of queries, ``mean`` or ``cls``.
        normalize: whether vectors get L2 norm 1.
        scale: inverse temperature of the losses; 1 for inner products without normalization, 20 or so for cosines.
        beta: inverse temperature of the aggregation of a document's rows; None: the maximum.
        contrastive_weight: the weight of the contrastive loss, 0 or more; 0: distillation alone, without labels.
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

    @property
    def representation_settings(self) -> dict[str, int]:
        """Its settings: the engine's defaults unless the objective has some of its own."""
        return {}

    @abstractmethod
    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """The rows of documents before normalization."""

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """Pool queries (Eq. 3 of Tang et al. 2021); see `Objective.represent_queries`."""
        pooled = pool(hidden, tokens.mask.to(hidden.device), self.settings.pooling)
        return normalize_rows(pooled, self.settings.normalize)

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
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
        terms = self.terms(scores, step.targets, step.relevant, step.teacher_scores)
        for term in self.settings.distillation:
            if term.row_weight:
                divergence = self._row_divergence(queries, documents, step.teacher_scores[term.teacher], term)
                terms[f"distillation of rows from {term.teacher}"] = term.row_weight * divergence
        return terms

    def _row_divergence(
        self, queries: torch.Tensor, documents: DocumentRows, taught: TeacherScores, term: DistillationTerm
    ) -> torch.Tensor:
        """See `row_distillation_loss`.

        Raises:
            InvalidSetting: the teacher has other numbers of rows.
        """
        if taught.rows is None or taught.row_counts != documents.counts:
            raise InvalidSetting(
                f"the teacher {term.teacher!r} cuts texts into other passages than the encoder in training",
                expected=f"a tokenizer that cuts texts alike: documents of {documents.counts} rows",
                actual=taught.row_counts or "none",
            )
        scores = queries @ documents.values.T
        return row_distillation_loss(scores, taught.rows, self.settings.scale, term.scale)

    def terms(
        self,
        scores: torch.Tensor,
        targets: torch.Tensor,
        relevant: torch.Tensor,
        teacher_scores: Mapping[str, TeacherScores],
    ) -> dict[str, torch.Tensor]:
        """The terms of the loss of some scores.

        Args:
            scores: (n_queries, n_documents) float32.
            targets: (n_queries,) int64, the column of each query's document.
            relevant: (n_queries, n_documents) bool, what is not a negative, targets included.
            teacher_scores: for each teacher by name the scores of the first documents, all or some of them.
        """
        terms: dict[str, torch.Tensor] = {}
        if self.settings.contrastive_weight:
            loss = contrastive_loss(scores, targets, relevant, self.settings.scale)
            terms["contrastive"] = self.settings.contrastive_weight * loss
        for term in self.settings.distillation:
            taught = teacher_scores[term.teacher].documents
            loss = distillation_loss(scores[:, : taught.shape[1]], taught, self.settings.scale, term.scale)
            terms[f"distillation from {term.teacher}"] = term.weight * loss
        return terms

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """None: everything trained is in the network."""
        return {}

    def use(self) -> Use:
        """The entries of the checkpoint; see `Objective.use`."""
        settings = self.settings
        return Use(
            settings.pooling,
            settings.normalize,
            settings.beta,
            self.representation,
            self.representation_settings,
        )

    def save(self, folder: Path) -> dict[str, object]:
        """Nothing: the network is all there is; see `Objective.save`."""
        del folder
        return {}
