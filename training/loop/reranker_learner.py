"""A reranker in training: the scores of each query's documents, the relevant one and hard negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.engine.encoding.encoder import Encoder
from quarry.training.data.batches import Batch
from quarry.training.data.negatives import open_temporary_index
from quarry.training.loop.gradient_cache import draw_seed
from quarry.training.loop.validation import ValidationSet, ndcg_10
from quarry.training.model.cross_encoder import CrossEncoder, write_cross_encoder
from quarry.training.model.tokens import PairBatcher
from quarry.training.objectives.losses import contrastive_loss

__all__ = ["FirstHits", "RerankerLearner", "find_first_hits"]

_N_HITS = 20  # of which negatives are drawn

Run = Mapping[str, list[str]]


@dataclass(frozen=True)
class FirstHits:
    """Held-out queries and the documents that the first stage finds for them.

    Attributes:
        data: documents, queries and judgments.
        hits: for each query id the ids of the documents to rerank, the best first.
    """

    data: ValidationSet
    hits: Run


def find_first_hits(data: ValidationSet, encoder: Encoder) -> FirstHits:
    """Search an index of the held-out documents in hybrid mode, for 20 hits of each query.

    Args:
        data: what to search.
        encoder: makes the vectors.
    """
    with open_temporary_index(data.documents.items(), encoder) as engine:
        answers = engine.search(list(data.queries.values()), _N_HITS, operators=False)
    return FirstHits(
        data, {query: [hit.id for hit in hits] for query, hits in zip(data.queries, answers, strict=True)}
    )


@dataclass(frozen=True)
class RerankerLearner:
    """A `quarry.training.loop.trainer.Learner` of a cross-encoder.

    The loss of a query is -log softmax of the scores at its relevant document, among that and `n_negatives`
    others (Gao, Dai and Callan 2021, Eq. 4: localized contrastive estimation): its own hard negatives, and, when
    it has fewer, documents of the batch that are not known to be relevant.

    Attributes:
        network: what is trained.
        pairs: tokenizes pairs.
        window: most tokens of a pair that the exported reranker reads at once.
        card: README.md of its checkpoints.
        n_negatives: the number of negatives of each query, 1 at least.
        chunk_size: pairs in one graph; those of a query stay together.
        seed: the seed of random draws.
        held_out: to validate with, or None.
    """

    network: CrossEncoder
    pairs: PairBatcher
    window: int
    card: str
    n_negatives: int
    chunk_size: int
    seed: int
    held_out: FirstHits | None = None

    def parameters(self) -> Mapping[str, tuple[torch.nn.Parameter, float]]:
        """None; see `Learner.parameters`."""
        return {}

    def backward(self, batch: Batch, step: int) -> dict[str, float]:
        """Score the candidates of some queries at a time; see `Learner.backward`."""
        n_queries = len(batch.queries)
        at_once = max(1, self.chunk_size // (1 + self.n_negatives))
        total = 0.0
        for low in range(0, n_queries, at_once):
            torch.manual_seed(draw_seed(self.seed, step, low))
            rows = range(low, min(low + at_once, n_queries))
            loss = self._loss(batch, rows) * (len(rows) / n_queries)
            loss.backward()
            total += float(loss.detach())
        return {"contrastive": total}

    def _loss(self, batch: Batch, rows: range) -> torch.Tensor:
        """The mean over some queries of the batch."""
        columns = [self._candidates(batch, row) for row in rows]
        pairs = [
            (batch.queries[row], batch.documents[column])
            for row, own in zip(rows, columns, strict=True)
            for column in own
        ]
        scores_of_pairs = self.network.scores(self.pairs.batch(pairs)).split([len(own) for own in columns])
        scores = torch.nn.utils.rnn.pad_sequence(list(scores_of_pairs), batch_first=True, padding_value=-torch.inf)
        targets = torch.zeros(len(rows), dtype=torch.long, device=scores.device)
        relevant = torch.zeros_like(scores, dtype=torch.bool)
        relevant[:, 0] = True
        return contrastive_loss(scores, targets, relevant, 1.0)

    def _candidates(self, batch: Batch, row: int) -> list[int]:
        """Columns of the batch's documents: the relevant one, then negatives."""
        own = batch.negatives[row].tolist()
        others = (column for column in range(len(batch.documents)) if not batch.relevant[row, column])
        negatives = list(dict.fromkeys([*own, *others]))[: self.n_negatives]
        return [int(batch.targets[row]), *negatives]

    def validate(self) -> float | None:
        """Rerank the first hits of the held-out queries; see `Learner.validate`."""
        if self.held_out is None:
            return None
        data, was_training = self.held_out.data, self.network.model.training
        self.network.model.eval()
        run = {}
        with torch.no_grad():
            for query, ids in self.held_out.hits.items():
                pairs = [(data.queries[query], data.documents[each]) for each in ids]
                run[query] = dict(zip(ids, self.network.scores(self.pairs.batch(pairs)).tolist(), strict=True))
        self.network.model.train(was_training)
        return ndcg_10(data.qrels, run)

    def write(self, folder: Path) -> None:
        """Write the checkpoint of a sequence classifier; see `Learner.write`."""
        write_cross_encoder(self.network, folder, self.window, self.card)

    def trained_weights(self, folder: Path) -> Path:
        """All weights; see `Learner.trained_weights`."""
        return folder
