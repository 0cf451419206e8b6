"""One network trained for one representation of documents, and the rows that it gives a collection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from bench.training.reproduction.evaluation import Evaluation
from bench.training.reproduction.small_run import SmallRun, Table
from quarry.training.model.network import EncoderNetwork, load_network
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.registry import ObjectiveSettings, make_objective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Encoded", "TrainedRepresentation", "train_representation"]


class Encoded(NamedTuple):
    """A collection as vectors.

    Attributes:
        queries: (n_queries, dim).
        documents: the rows of all documents.
    """

    queries: torch.Tensor
    documents: DocumentRows


@dataclass(frozen=True)
class TrainedRepresentation:
    """A trained network with its objective.

    Attributes:
        network: the encoder.
        objective: makes vectors and scores.
    """

    network: EncoderNetwork
    objective: RankingObjective

    def encode(self, evaluation: Evaluation) -> Encoded:
        """Encode queries and documents."""
        with torch.no_grad():
            queries = evaluation.encode_queries(self.network, self.objective)
            return Encoded(queries, evaluation.encode_documents(self.network, self.objective))


def train_representation(run: SmallRun, table: Table, folder: Path, name: str) -> TrainedRepresentation:
    """Train for a representation, or open what was trained before.

    Args:
        run: the training.
        table: ``[objective]`` of the recipe.
        folder: of all runs, whose prepared data they share.
        name: of this one.
    """
    prepared = folder / "prepared"
    run.open_store(prepared / "data")
    final = run.train(folder / name, table, prepared=prepared)
    settings = ObjectiveSettings(**table)  # type: ignore[arg-type]
    network = load_network(final, precision=run.precision, mlm=settings.mlm)
    return TrainedRepresentation(network, make_objective(settings, (), run.seed, network))
