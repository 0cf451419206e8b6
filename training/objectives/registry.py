"""Objectives and teachers by the names that recipes use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quarry.formats.errors import InvalidSetting
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.projection import HEAD_NAME
from quarry.training.objectives.aggretriever import Aggretriever, AggretrieverSettings
from quarry.training.objectives.first_m import FirstVectors, SingleVector
from quarry.training.objectives.passages import Passages
from quarry.training.objectives.pseudo_queries import PseudoQueries
from quarry.training.objectives.ranking import DistillationTerm, RankingObjective, RankingSettings

__all__ = ["ObjectiveSettings", "TeacherSettings", "make_objective"]


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """One ``[[teachers]]`` table.

    Attributes:
        name: the name of the teacher.
        weight: the weight of its term in the loss.
        scale: inverse temperature of its scores.
        passage_weight: the weight of the divergence from its scores of single passages, cut as the student's are;
            0: only its scores of documents are distilled.
        encoders: checkpoints or bundles of encoders, the student's own for self-distillation.
        rerankers: folders of reranker bundles. More than one encoder and reranker make an ensemble.
        tokens_per_piece: its encoders score documents by passages of so many tokens; 0: by one vector.
        pooling: the pooling of its encoders.
    """

    name: str
    weight: float
    scale: float = 20.0
    passage_weight: float = 0.0
    encoders: tuple[Path, ...] = ()
    rerankers: tuple[Path, ...] = ()
    tokens_per_piece: int = 0
    pooling: str = "mean"

    def __post_init__(self) -> None:
        if not self.encoders and not self.rerankers:
            raise InvalidSetting(f"the teacher {self.name!r} is empty", expected="encoders or rerankers")
        if not (0 < self.weight < math.inf and 0 < self.scale < math.inf):
            raise InvalidSetting(
                f"weight or scale of the teacher {self.name!r} is out of range", expected="above 0, finite"
            )
        if not 0 <= self.passage_weight < math.inf:
            raise InvalidSetting(
                f"passage_weight of the teacher {self.name!r} is out of range",
                expected="0 or more, finite",
                actual=self.passage_weight,
            )
        if self.passage_weight and (len(self.encoders) != 1 or self.rerankers):
            raise InvalidSetting(
                f"the teacher {self.name!r} has a passage_weight, and is not one encoder",
                expected="one path in encoders, and no rerankers",
            )


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """The ``[objective]`` table.

    Attributes:
        name: ``passages``, ``single_vector``, ``first_m``, ``pseudo_queries`` or ``aggretriever`` of encoders;
            ``cross_encoder`` of rerankers, which have no other setting.
        pooling: the pooling of queries, ``mean`` or ``cls``.
        normalize: whether vectors get L2 norm 1.
        scale: inverse temperature of the losses.
        beta: inverse temperature of the aggregation of a document's rows; left out: the maximum.
        contrastive_weight: the weight of the contrastive loss.
        tokens_per_piece: for ``passages``, mean lengths, one of which is drawn at each step.
        n_vectors: the number of vectors of ``first_m``.
        n_centroids: the number of centroids of ``pseudo_queries``.
        n_cls: for ``aggretriever``, as the next three: dimensions of the [CLS] part.
        n_dims: dimensions of the aggregated part.
        signed: whether half of the words count as negative (agg*), or none (agg+).
        part_weight: the weight of the losses of either part alone.
        mlm: for ``aggretriever``, whether words are those that the masked-language-model head predicts.
    """

    name: str
    pooling: str = "mean"
    normalize: bool = True
    scale: float = 20.0
    beta: float | None = None
    contrastive_weight: float = 1.0
    tokens_per_piece: tuple[int, ...] = (24,)
    n_vectors: int = 8
    n_centroids: int = 8
    n_cls: int = 128
    n_dims: int = 640
    signed: bool = True
    part_weight: float = 0.5
    mlm: bool = False

    def __post_init__(self) -> None:
        if self.mlm and self.name != "aggretriever":
            raise InvalidSetting("mlm is a setting of aggretriever", actual=self.name)


def make_objective(
    settings: ObjectiveSettings,
    teachers: tuple[TeacherSettings, ...] = (),
    seed: int = 0,
    network: EncoderNetwork | None = None,
) -> RankingObjective:
    """Build the objective that a recipe names.

    Args:
        settings: the recipe's.
        teachers: whose scores it distills.
        seed: the seed of its random choices.
        network: whose token vectors it is made for; objectives without layers of their own need none.

    Raises:
        InvalidSetting: there is none of the name, or a setting is out of range.
    """
    shared = RankingSettings(
        settings.pooling,
        settings.normalize,
        settings.scale,
        settings.beta,
        settings.contrastive_weight,
        tuple(DistillationTerm(each.name, each.weight, each.scale, each.passage_weight) for each in teachers),
    )
    makers: dict[str, Callable[[], RankingObjective]] = {
        "passages": lambda: Passages(shared, settings.tokens_per_piece, seed),
        "single_vector": lambda: SingleVector(shared),
        "first_m": lambda: FirstVectors(shared, settings.n_vectors),
        "pseudo_queries": lambda: PseudoQueries(shared, settings.n_centroids),
        "aggretriever": lambda: _aggretriever(settings, shared, seed, network),
    }
    if settings.name not in makers:
        raise InvalidSetting("unknown objective", expected=", ".join(makers), actual=repr(settings.name))
    return makers[settings.name]()


def _aggretriever(
    settings: ObjectiveSettings, shared: RankingSettings, seed: int, network: EncoderNetwork | None
) -> Aggretriever:
    if network is None:
        raise InvalidSetting("aggretriever has layers, which are made for a network", expected="a network")
    if network.projection is not None:
        raise InvalidSetting(
            "aggretriever has layers of its own",
            path=network.folder / HEAD_NAME,
            expected="a checkpoint without a projection",
        )
    return Aggretriever(
        shared,
        AggretrieverSettings(settings.n_cls, settings.n_dims, settings.signed, settings.part_weight),
        network.dim,
        seed,
        network.word_logits if settings.mlm else None,
        network.folder,
        network.device,
    )
