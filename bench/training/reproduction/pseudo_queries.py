"""Pseudo query embeddings: Tables 4 and 5 of Tang et al. in small."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from bench.harness.records import Record
from bench.training.reproduction.evaluation import Scorer
from bench.training.reproduction.experiment import Case, Experiment, cell, compare, mean_of, select
from bench.training.reproduction.ranks import pack_ranks
from bench.training.reproduction.small_run import Table
from bench.training.reproduction.trained_representation import Encoded, TrainedRepresentation, train_representation
from quarry.training.objectives.first_m import FirstVectors
from quarry.training.objectives.ranking import RankingSettings
from quarry.training.objectives.scoring import DocumentRows, score_documents

__all__ = ["PseudoQueryEmbeddings"]

_PAPER = {"1": "ANCE (First-P) .372", "4": ".373", "8": ".379"}
"""MRR@100 on MS MARCO documents without ANCE's negatives, Tang et al. 2021, Table 5; one vector: Table 2."""

_PAPER_MS = {"one vector": "100", "all documents": "880", "two steps": "180", "late interaction": "940"}
"""ms a query, Table 4: "independent", "w/o optimization", "Retrieval", "late interaction"."""

_SCALE = 20.0
_CANDIDATES = 50
_N_TIMED = 100
_MOST_TOKENS = 512
_DEPTH = 10

Search = Callable[[int], torch.Tensor]


class PseudoQueryEmbeddings(Experiment):
    """Tang et al. 2021: k centroids against one vector (Table 5), and search in two steps (section 3.3, Table 4).

    Documents are k centroids of a k-means of their token vectors, trained through it, with softmax aggregation. In
    two steps the documents with the best centroids are found first, and their exact scores computed next; late
    interaction compares all token vectors of queries and documents.
    """

    summary = "pseudo query embeddings: k centroids, search in two steps"

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See `Experiment.add_arguments`."""
        parser.add_argument("--centroids", nargs="+", type=int, default=[1, 4, 8, 16, 32], help="1: [CLS] alone")
        parser.set_defaults(steps=300, batch_size=32, frozen_layers=-1, train_documents=4000)
        parser.set_defaults(learning_rate=3e-4, tokens=96, search_tokens=128, precision="fp32")

    def settings(self) -> dict[str, object]:
        """See `Experiment.settings`."""
        return {"scale": _SCALE, "candidates": _CANDIDATES}

    def cases(self) -> Sequence[Case]:
        """See `Experiment.cases`."""
        return [{"centroids": k} for k in self.args.centroids]

    def measure(self, case: Case, seed: int) -> dict[str, object]:
        """See `Experiment.measure`."""
        k = int(str(case["centroids"]))
        trained = train_representation(self.run.with_seed(seed), _table(k), self.folder, f"{k}-{seed}")
        encoded = trained.encode(self.evaluation)
        found: dict[str, object] = {"ranks": pack_ranks(self.evaluation.rank(_exact(encoded, k)))}
        if k > 1:
            found["ranks_two_steps"] = pack_ranks(self.evaluation.rank(_two_steps(encoded)))
        searches = _vector_searches(encoded) if k > 1 else _token_searches(encoded, *self._tokens(trained))
        n_timed = min(_N_TIMED, len(encoded.queries))
        found["ms"] = {name: _milliseconds(search, n_timed) for name, search in searches.items()}
        return found

    def _tokens(self, trained: TrainedRepresentation) -> tuple[DocumentRows, Sequence[torch.Tensor]]:
        """The vectors of all tokens of the documents, and of each of some queries."""
        collection = self.evaluation.collection
        every = TrainedRepresentation(trained.network, FirstVectors(RankingSettings("cls"), _MOST_TOKENS))
        timed = dict(list(collection.queries.items())[:_N_TIMED])
        queries = replace(self.evaluation, collection=replace(collection, documents=timed))
        with torch.no_grad():
            rows = queries.encode_documents(every.network, every.objective)
            documents = self.evaluation.encode_documents(every.network, every.objective)
        return documents, rows.values.split(list(rows.counts))

    def table(self, records: Sequence[Record]) -> Iterator[str]:
        """Table 5, then Table 4."""
        yield (
            "| vectors a document | seeds | RR@10 | above one (95 %) | in two steps - exact | "
            "MRR@100 in the paper, without hard negatives |"
        )
        yield "| ---: | ---: | ---: | --- | --- | --- |"
        one = select(records, {"centroids": 1})
        for case in self.cases():
            own = select(records, case)
            if not own:
                continue
            k, above, steps = str(case["centroids"]), "", ""
            if k != "1":
                above = compare(own, one)
                steps = compare([{**each, "ranks": each["ranks_two_steps"]} for each in own], own)
            mean = cell(mean_of(own, "rr_10"))
            yield f"| {k} | {len(own)} | {mean} | {above} | {steps} | {_PAPER.get(k, '')} |"
        yield ""
        yield "| search | " + " | ".join(f"k = {case['centroids']}" for case in self.cases()) + " | in the paper |"
        yield "| --- |" + " ---: |" * (len(self.cases()) + 1)
        for name, paper in _PAPER_MS.items():
            cells = [_mean_ms(select(records, case), name) for case in self.cases()]
            yield f"| {name}, ms a query | {' | '.join(cells)} | {paper} |"


def _table(k: int) -> Table:
    if k == 1:
        return {"name": "single_vector", "pooling": "cls", "scale": _SCALE}
    return {"name": "pseudo_queries", "pooling": "cls", "n_centroids": k, "scale": _SCALE, "beta": _SCALE}


def _exact(encoded: Encoded, k: int) -> Scorer:
    beta = None if k == 1 else _SCALE
    return lambda own: score_documents(encoded.queries[own], encoded.documents, beta)


def _two_steps(encoded: Encoded) -> Scorer:
    """Exact scores of the documents with the best centroids (section 3.3); -inf for all others."""
    documents = encoded.documents

    def score(own: slice) -> torch.Tensor:
        queries = encoded.queries[own]
        best = score_documents(queries, documents, None)
        found = best.topk(min(_CANDIDATES, best.shape[1]), dim=1).indices
        is_other = torch.ones_like(best, dtype=torch.bool).scatter_(1, found, False)
        return score_documents(queries, documents, _SCALE).masked_fill(is_other, -torch.inf)

    return score


def _vector_searches(encoded: Encoded) -> dict[str, Search]:
    """Searches by centroids for the query of a number, one query at a time."""
    queries, documents = encoded
    owners = torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents.counts))
    parts = documents.values.split(list(documents.counts))

    def search_all(number: int) -> torch.Tensor:
        scores = score_documents(queries[number : number + 1], documents, _SCALE)[0]
        return scores.topk(min(_DEPTH, len(documents))).indices

    def search_in_two_steps(number: int) -> torch.Tensor:
        nothing = queries.new_full((len(documents),), -torch.inf)
        best = nothing.scatter_reduce(0, owners, documents.values @ queries[number], "amax")
        found = best.topk(min(_CANDIDATES, len(documents))).indices
        own = [parts[document] for document in found.tolist()]
        rows = DocumentRows(torch.cat(own), tuple(map(len, own)))
        scores = score_documents(queries[number : number + 1], rows, _SCALE)[0]
        return found[scores.topk(min(_DEPTH, len(rows))).indices]

    return {"all documents": search_all, "two steps": search_in_two_steps}


def _token_searches(
    encoded: Encoded, tokens: DocumentRows, query_tokens: Sequence[torch.Tensor]
) -> dict[str, Search]:
    """Searches by one vector and by all token vectors (the sum over query tokens of the best document token)."""
    queries, documents = encoded
    owners = torch.repeat_interleave(torch.arange(len(tokens)), torch.tensor(tokens.counts))
    n_found = min(_DEPTH, len(documents))

    def search_vectors(number: int) -> torch.Tensor:
        return (documents.values @ queries[number]).topk(n_found).indices

    def search_tokens(number: int) -> torch.Tensor:
        scores = tokens.values @ query_tokens[number].T
        nothing = scores.new_full((len(tokens), scores.shape[1]), -torch.inf)
        best = nothing.scatter_reduce(0, owners[:, None].expand(-1, scores.shape[1]), scores, "amax")
        return best.sum(1).topk(n_found).indices

    return {"one vector": search_vectors, "late interaction": search_tokens}


def _milliseconds(search: Search, n_queries: int) -> float:
    """Processor time of one query, on one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    search(0)
    started = time.process_time()
    for number in range(n_queries):
        search(number)
    took = time.process_time() - started
    torch.set_num_threads(n_threads)
    return round(1000 * took / n_queries, 3)


def _mean_ms(records: Sequence[Record], name: str) -> str:
    found = [each["ms"][name] for each in records if name in each["ms"]]  # type: ignore[index, operator]
    return f"{np.mean(found):.2f}" if found else ""
