"""Builds the objective of a recipe that aligns an encoder with teachers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from quarry.engine.representation.pieces import text_pieces
from quarry.training.alignment.joint_space import JointSpace, best_shares, fit_joint_space, load_joint_space
from quarry.training.alignment.objective import AlignedObjective, AlignedSource, AlignmentSettings
from quarry.training.alignment.teacher_vectors import (
    Halves,
    Span,
    TeacherEncoder,
    VectorStore,
    keep_vectors,
    open_teacher,
)
from quarry.training.data.example_store import ExampleStore
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.projection import new_projection
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.passages import Passages
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["AlignmentPreparation"]

_FOLDER = "teachers"
_N_SAMPLED = 1000  # queries and documents of each source that the space is fitted to
_N_RANKED = 2000  # documents of each source that the shares are chosen by
_TOKENS_OF_TEACHERS = 2  # times the student's limit: their tokens may be shorter
_RIDGE = 1e-3  # of the mean eigenvalue, in the first projection
_TEXTS_AT_ONCE = 64


@dataclass(frozen=True)
class AlignmentPreparation:
    """Parts that the objective is made from.

    Attributes:
        settings: the recipe's; its teachers are checkpoints.
        ranking: the inner objective.
        network: the student before training.
        queries: tokenizes its queries.
        documents: tokenizes its documents, whose passages the teachers' vectors are of.
        stores: the sources of the run by name.
        weights: the weights of the sources.
        folder: the folder of the run; vectors are kept there.
    """

    settings: AlignmentSettings
    ranking: RankingObjective
    network: EncoderNetwork
    queries: TextBatcher
    documents: TextBatcher
    stores: Mapping[str, ExampleStore]
    weights: Mapping[str, float]
    folder: Path

    def objective(self) -> AlignedObjective:
        """Make the teachers' vectors of all texts, unless that was done before, and the objective.

        ``teachers/shares.json`` in the folder of the run says how well each mixture of the teachers ranks the
        pairs of each source.
        """
        sources = {name: AlignedSource(*self._vectors[name], self._shares[name]) for name in self.stores}
        return AlignedObjective(self.ranking, self.settings, sources, self._space)

    def projection(self) -> torch.nn.Linear:
        """The layer behind the student that comes closest to the targets before training, by least squares.

        It is fitted to the sampled queries and whole documents, and follows the layer that the student has.
        """
        path = self.folder / _FOLDER / "projection.npy"
        if not path.is_file():
            values = torch.cat(
                [torch.cat([self._student(name, True), self._student(name, False)]) for name in self.stores]
            )
            targets = self._space.target(
                [self._space.unit(number, each) for number, each in enumerate(self._samples)]
            )
            products = (values.T @ values).double()
            ridge = _RIDGE * products.diagonal().mean() * torch.eye(len(products), dtype=torch.float64)
            layer = torch.linalg.solve(products + ridge, (values.T @ targets).double()).T.float()
            partial_path = path.with_suffix(".partial.npy")
            np.save(partial_path, layer.numpy())
            partial_path.rename(path)
        layer = torch.from_numpy(np.load(path))
        return new_projection(layer, before=self.network.projection).to(self.network.device)

    @cached_property
    def _vectors(self) -> dict[str, tuple[list[VectorStore], list[VectorStore]]]:
        """The teachers' vectors of queries and documents of each source."""
        made: dict[str, tuple[list[VectorStore], list[VectorStore]]] = {name: ([], []) for name in self.stores}
        for number, path in enumerate(self.settings.teachers):
            open_once = _Once(partial(self._open, path))
            for name, store in self.stores.items():
                folder = self.folder / _FOLDER / str(number) / name
                sides = (
                    ("queries", store.n_examples, partial(self._query_rows, open_once, store)),
                    ("documents", store.n_documents, partial(self._document_rows, open_once, store)),
                )
                for kept, (side, n_texts, encode) in zip(made[name], sides, strict=True):
                    kept.append(keep_vectors(folder / side, n_texts, encode))
        return made

    def _open(self, path: Path) -> TeacherEncoder:
        limits = (_TOKENS_OF_TEACHERS * each.max_tokens for each in (self.queries, self.documents))
        return open_teacher(path, self.network.precision, str(self.network.device), *limits)

    def _query_rows(self, teacher: _Once, store: ExampleStore, numbers: range) -> Sequence[Halves]:
        return teacher.get().query_rows([store.query(number) for number in numbers])

    def _document_rows(self, teacher: _Once, store: ExampleStore, numbers: range) -> Sequence[Halves]:
        texts = [store.document(number) for number in numbers]
        return teacher.get().document_rows(texts, [self._spans(text) for text in texts])

    def _spans(self, text: str) -> list[Span]:
        """The characters of the rows that the student makes of a document."""
        tokens = self.documents.tokenize(text)
        if not isinstance(self.ranking, Passages):
            return [(int(tokens.starts[0]), int(tokens.ends[-1]))]
        length, whole = self.ranking.tokens_per_piece(None), [(0, len(tokens.ids))]
        return text_pieces(text, tokens.starts, tokens.ends, whole, length).spans_with_whole()

    @cached_property
    def _shares(self) -> dict[str, Sequence[float]]:
        """The shares of the teachers' scores in each source, chosen by its own pairs."""
        path = self.folder / _FOLDER / "shares.json"
        if not path.is_file():
            by_source = {}
            for name in self.stores:
                shares, ranks = self._best_shares(name)
                tried = {" ".join(map(str, each)): round(rank, 4) for each, rank in ranks.items()}
                by_source[name] = {"shares": shares, "mean reciprocal rank by shares": tried}
            path.write_text(json.dumps(by_source, indent=1), "utf-8")
        return {name: each["shares"] for name, each in json.loads(path.read_text("utf-8")).items()}

    def _best_shares(self, name: str) -> tuple[tuple[float, ...], Mapping[tuple[float, ...], float]]:
        store, (queries, documents) = self.stores[name], self._vectors[name]
        examples = _spread(store.n_examples, self.settings.n_pairs)
        relevant = [store.relevant(example).tolist() for example in examples]
        ranked = sorted({*_spread(store.n_documents, _N_RANKED), *(doc for each in relevant for doc in each)})
        places = {document: place for place, document in enumerate(ranked)}
        space = _centered(self._samples)
        rows = []
        for number, each in enumerate(documents):
            selected = each.rows(ranked)
            rows.append(DocumentRows(space.unit(number, selected.values), selected.counts))
        asked = [space.unit(number, each.rows(examples).values) for number, each in enumerate(queries)]
        return best_shares(asked, rows, [[places[document] for document in each] for each in relevant])

    @cached_property
    def _space(self) -> JointSpace:
        path = self.folder / _FOLDER / "space.pt"
        if not path.is_file():
            weights = np.array([self.weights[name] for name in self._shares])
            shares = weights @ np.array(list(self._shares.values())) / weights.sum()
            fit_joint_space(self._samples, shares.tolist(), self.settings.dims[0]).save(path)
        return load_joint_space(path)

    @cached_property
    def _samples(self) -> list[torch.Tensor]:
        """For each teacher the vectors of the sampled queries and whole documents of every source."""
        samples = []
        for number in range(len(self.settings.teachers)):
            parts = []
            for name, store in self.stores.items():
                queries, documents = (side[number] for side in self._vectors[name])
                parts.append(queries.rows(_spread(store.n_examples, _N_SAMPLED)).values)
                rows = documents.rows(_spread(store.n_documents, _N_SAMPLED))
                parts.append(rows.values[torch.tensor(rows.counts).cumsum(0) - 1])
            samples.append(torch.cat(parts))
        return samples

    def _student(self, name: str, of_queries: bool) -> torch.Tensor:
        """The student's vectors of the sampled queries or whole documents of a source, not normalized."""
        store = self.stores[name]
        read, batcher = (store.query, self.queries) if of_queries else (store.document, self.documents)
        numbers = _spread(store.n_examples if of_queries else store.n_documents, _N_SAMPLED)
        self.network.model.eval()
        parts = []
        for low in range(0, len(numbers), _TEXTS_AT_ONCE):
            tokens = batcher.batch([read(number) for number in numbers[low : low + _TEXTS_AT_ONCE]])
            with torch.no_grad():
                parts.append(self.ranking.represent_queries(self.network.hidden(tokens), tokens).cpu())
        return torch.cat(parts)


class _Once:
    """A teacher that is loaded when it is first needed: not by a run whose vectors are there."""

    def __init__(self, load: Callable[[], TeacherEncoder]) -> None:
        self._load = load

    def get(self) -> TeacherEncoder:
        """The teacher."""
        return self._teacher

    @cached_property
    def _teacher(self) -> TeacherEncoder:
        return self._load()


def _spread(n: int, n_taken: int) -> list[int]:
    """Evenly spaced numbers below n, `n_taken` at most."""
    count = min(n, n_taken)
    return [number * n // count for number in range(count)]


def _centered(samples: Sequence[torch.Tensor]) -> JointSpace:
    """A space of means alone, for `JointSpace.unit`."""
    return JointSpace(tuple(each.mean(0) for each in samples), (), samples[0])
