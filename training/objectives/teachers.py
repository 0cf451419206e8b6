"""Sources of the scores to distill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from quarry.engine.search.reranker import Reranker
from quarry.formats.errors import InvalidSetting
from quarry.training.data.batches import Batch
from quarry.training.data.example_store import ExampleStore
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.objective import Objective, TeacherScores
from quarry.training.objectives.passages import Passages

__all__ = ["CrossEncoderTeacher", "EncoderTeacher", "Ensemble", "Teacher", "check_cuts", "standardize"]

_N_COMPARED = 200  # documents of each source whose tokens are compared


class Teacher(Protocol):
    """Scores the documents of a batch for its queries."""

    def scores(self, batch: Batch, step: int) -> TeacherScores:
        """Return its scores on the CPU."""
        ...


class EncoderTeacher:
    """Another encoder: a larger one, the uncompressed one, or the student as it was before training.

    Scores of the student as it was keep what it knew: its ranking of texts is distilled back (Li and Hoiem 2018,
    "Learning without Forgetting", with rankings in the place of classes).

    Args:
        network: the encoder.
        objective: makes the vectors that are compared, in passages finer than the student's, say.
        queries: tokenizes queries for it.
        documents: tokenizes documents.
        passages: makes the rows that the student makes at the same step, for scores of rows; None: there are none.
    """

    def __init__(
        self,
        network: EncoderNetwork,
        objective: Objective,
        queries: TextBatcher,
        documents: TextBatcher,
        passages: Passages | None = None,
    ) -> None:
        self._network, self._objective = network, objective
        self._queries, self._documents = queries, documents
        self._passages = passages
        network.model.eval()

    def scores(self, batch: Batch, step: int) -> TeacherScores:
        """Score by the encoder's vectors; see `Teacher.scores`."""
        queries, documents = self._queries.batch(batch.queries), self._documents.batch(batch.documents)
        with torch.no_grad():
            query_vectors = self._objective.represent_queries(self._network.hidden(queries), queries)
            hidden = self._network.hidden(documents)
            rows = self._objective.represent_documents(hidden, documents, step)
            scores = self._objective.scores(query_vectors, rows).cpu()
            if self._passages is None:
                return TeacherScores(scores)
            passages = self._passages.represent_documents(hidden, documents, step)
            return TeacherScores(scores, (query_vectors @ passages.values.T).cpu(), passages.counts)


class CrossEncoderTeacher:
    """A cross-encoder: reads each query with each document, as `quarry.engine.search.reranker` does.

    Args:
        reranker: scores texts for a query.
    """

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker

    def scores(self, batch: Batch, step: int) -> TeacherScores:
        """Score every pair; see `Teacher.scores`."""
        del step
        rows = [self._reranker.scores(query, batch.documents) for query in batch.queries]
        return TeacherScores(torch.from_numpy(np.stack(rows)))


class Ensemble:
    """Several teachers: the mean of their scores, each standardized for each query.

    Args:
        teachers: one at least.
    """

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        self._teachers = teachers

    def scores(self, batch: Batch, step: int) -> TeacherScores:
        """Mix the teachers' scores of documents; see `Teacher.scores`."""
        standardized = [standardize(teacher.scores(batch, step).documents) for teacher in self._teachers]
        return TeacherScores(torch.stack(standardized).mean(0))


def check_cuts(
    teacher: Path, documents: TextBatcher, others: TextBatcher, stores: Mapping[str, ExampleStore]
) -> None:
    """Raise unless two tokenizers cut the first documents of every source into the same tokens.

    Passages are cut between tokens, so passages of the same numbers may otherwise be of other texts.

    Args:
        teacher: its folder, for the message.
        documents: its tokenizer.
        others: that of the encoder in training.
        stores: the sources by name.

    Raises:
        InvalidSetting: the tokens of a document begin or end elsewhere.
    """
    for name, store in stores.items():
        for number in range(min(_N_COMPARED, store.n_documents)):
            text = store.document(number)
            tokens, expected = documents.tokenize(text), others.tokenize(text)
            if (
                tokens.starts.tolist() != expected.starts.tolist()
                or tokens.ends.tolist() != expected.ends.tolist()
            ):
                raise InvalidSetting(
                    f"the teacher cuts document {number} of {name!r} into other tokens than the checkpoint",
                    path=teacher,
                    expected="with passage_weight a tokenizer that cuts texts as the checkpoint's does",
                    actual=f"{len(tokens.ids)} and {len(expected.ids)} tokens",
                )


def standardize(scores: torch.Tensor) -> torch.Tensor:
    """Bring each query's scores to mean 0 and standard deviation 1; equal scores become 0."""
    centered = scores - scores.mean(1, keepdim=True)
    return centered / centered.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)
