"""An encoder in training: the vectors of queries and documents, and the loss of an objective."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.training.data.batches import Batch
from quarry.training.loop.gradient_cache import GradientCache
from quarry.training.loop.validation import ValidationSet, validate
from quarry.training.model.checkpoint_files import EncoderFiles, write_checkpoint
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.rounded_weights import rounded_weights
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.objective import Objective, StepTargets
from quarry.training.objectives.teachers import Teacher

__all__ = ["EncoderLearner", "Student"]

_QUERIES = "query"


@dataclass(frozen=True)
class Student:
    """Networks that are trained, and how texts reach them.

    Attributes:
        network: the encoder.
        objective: what for.
        queries: tokenizes queries.
        documents: tokenizes documents.
        files: what a checkpoint says beside its weights.
        document_network: the encoder of documents if it is another one, which is not trained.
        compares_original: whether the loss needs the vectors that `document_network` gives queries.
        rounds_weights: whether `network` computes with rounded weights; see `rounded_weights`.
    """

    network: EncoderNetwork
    objective: Objective
    queries: TextBatcher
    documents: TextBatcher
    files: EncoderFiles
    document_network: EncoderNetwork | None = None
    compares_original: bool = False
    rounds_weights: bool = False

    def weights_in_use(self) -> AbstractContextManager[object]:
        """A context within which the network computes with the weights that it is trained for."""
        return rounded_weights(self.network) if self.rounds_weights else nullcontext()

    def write(self, folder: Path) -> None:
        """Write the checkpoint of an encoder; of two, that of queries lies in a folder of it."""
        if self.document_network is None:
            write_checkpoint(self.network, self.files, folder, self.objective.save)
            return

        def save_parts(within: Path) -> dict[str, object]:
            return {**self.objective.save(within), "query_checkpoint": _QUERIES}

        write_checkpoint(self.document_network, self.files, folder, save_parts)
        write_checkpoint(self.network, self.files, folder / _QUERIES)

    def trained_weights(self, folder: Path) -> Path:
        """The folder of the weights under training in a checkpoint that `write` wrote."""
        return folder if self.document_network is None else folder / _QUERIES


class EncoderLearner:
    """A `quarry.training.loop.trainer.Learner` of an encoder.

    Args:
        student: what is trained.
        teachers: whose scores are distilled, by name.
        validation: held-out data, or None.
        chunk_size: texts encoded with a graph at a time.
        seed: the seed of random draws.
    """

    def __init__(
        self,
        student: Student,
        teachers: Mapping[str, Teacher],
        validation: ValidationSet | None,
        *,
        chunk_size: int,
        seed: int,
    ) -> None:
        self.student, self._teachers, self._validation = student, teachers, validation
        self._cache = GradientCache(student.network, student.objective, chunk_size, seed)

    @property
    def network(self) -> EncoderNetwork:
        """The student's."""
        return self.student.network

    def parameters(self) -> Mapping[str, tuple[torch.nn.Parameter, float]]:
        """Those of the objective; see `Learner.parameters`."""
        return self.student.objective.parameters()

    def backward(self, batch: Batch, step: int) -> dict[str, float]:
        """Encode the batch and differentiate the loss of the objective; see `Learner.backward`."""
        student = self.student
        queries = student.queries.batch(batch.queries)
        documents = student.documents.batch(batch.documents) if student.objective.encodes_documents else None
        targets = self._targets(batch, step)
        with student.weights_in_use():
            return self._cache.backward(queries, documents, targets, step)

    def validate(self) -> float | None:
        """Search the held-out documents; see `Learner.validate`."""
        if self._validation is None:
            return None
        student = self.student
        encoders = (student.network, student.document_network or student.network)
        with student.weights_in_use():
            return validate(self._validation, encoders, student.objective, student.queries, student.documents)

    def write(self, folder: Path) -> None:
        """Write the student's checkpoint; see `Learner.write`."""
        self.student.write(folder)

    def trained_weights(self, folder: Path) -> Path:
        """The weights of the encoder under training; see `Learner.trained_weights`."""
        return self.student.trained_weights(folder)

    def _targets(self, batch: Batch, step: int) -> StepTargets:
        place = self.student.network.device
        return StepTargets(
            targets=torch.from_numpy(batch.targets).to(place),
            relevant=torch.from_numpy(batch.relevant).to(place),
            documents=torch.from_numpy(batch.numbers).to(place),
            source=batch.source,
            teacher_scores={name: each.scores(batch, step).to(place) for name, each in self._teachers.items()},
            positives=tuple(torch.from_numpy(each).to(place) for each in batch.positives),
            examples=torch.from_numpy(batch.examples).to(place),
            original_queries=self._original_queries(batch),
        )

    def _original_queries(self, batch: Batch) -> torch.Tensor | None:
        student = self.student
        if not student.compares_original or student.document_network is None:
            return None
        student.document_network.model.eval()
        with torch.no_grad():
            tokens = student.queries.batch(batch.queries)
            return student.objective.represent_queries(student.document_network.hidden(tokens), tokens)
