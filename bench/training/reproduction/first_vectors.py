"""ME-BERT: its gain with m, by the length of passages, and that of hybrids, in small (Luan et al. 2021)."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
import torch

from bench.data.collections import Collection
from bench.harness.records import Record
from bench.training.collections import (
    articles_of_split_train,
    held_out_articles,
    join_documents,
    write_collection,
)
from bench.training.reproduction.evaluation import Evaluation, Scorer
from bench.training.reproduction.experiment import Case, Experiment, cell, compare, mean_of, select
from bench.training.reproduction.ranks import pack_ranks, reciprocals
from bench.training.reproduction.small_run import SmallRun, Table
from bench.training.reproduction.trained_representation import Encoded, train_representation
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.training.data.beir import BeirPart
from quarry.training.data.evaluation_texts import EXCLUDED_ARTICLES
from quarry.training.objectives.scoring import score_documents

__all__ = ["FirstVectorsOfDocuments", "LexicalScores"]

_SCALE = 20.0
_WEIGHTS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
_TUNING_QUERIES = 1000
_MOST_TOKENS = 512
_PAPER = {
    ("bm25", 1): ".167 / .249",
    ("dense", 1): ".302 / .288",
    ("hybrid", 1): ".304 / .313",
    ("dense", 3): ".334 / -",
    ("hybrid", 3): ".338 / -",
    ("dense", 4): "- / .333",
    ("hybrid", 4): "- / .346",
}
"""MRR@10 on MS MARCO passages / documents, Luan et al. 2021, Table 1."""


class FirstVectorsOfDocuments(Experiment):
    """Luan et al. 2021: the first m vectors of a document against one, and both with BM25 (Table 1, Figures 4, 5).

    Documents are paragraphs, and paragraphs joined in twos and fours: the models are trained on single ones, or
    with ``--trained-on`` on joined ones. The weight of BM25 in a hybrid is chosen on articles of split train that
    training leaves out.
    """

    summary = "ME-BERT: m vectors, by length of passages, and hybrids"

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See `Experiment.add_arguments`."""
        parser.add_argument("--vectors", nargs="+", type=int, default=[1, 3, 8], help="m; 1: DE-BERT")
        parser.add_argument("--joined", nargs="+", type=int, default=[1, 2, 4], help="paragraphs of a document")
        parser.add_argument("--trained-on", type=int, default=1, help="paragraphs of a document in training")
        parser.set_defaults(steps=300, batch_size=32, frozen_layers=-1, train_documents=4000)
        parser.set_defaults(learning_rate=3e-4, tokens=96, search_tokens=128, precision="fp32")

    def settings(self) -> dict[str, object]:
        """See `Experiment.settings`."""
        return {"scale": _SCALE, "trained_on": self.args.trained_on}

    def cases(self) -> Sequence[Case]:
        """See `Experiment.cases`."""
        dense = [
            {"paragraphs": joined, "vectors": m, "search": search}
            for m in self.args.vectors
            for joined in self.args.joined
            for search in ("dense", "hybrid")
        ]
        return [*({"paragraphs": joined, "vectors": 0, "search": "bm25"} for joined in self.args.joined), *dense]

    def measure(self, case: Case, seed: int) -> dict[str, object]:
        """See `Experiment.measure`."""
        joined, m, search = int(str(case["paragraphs"])), int(str(case["vectors"])), case["search"]
        evaluation = self._evaluations[joined]
        if search == "bm25":
            return {"ranks": pack_ranks(evaluation.rank(self._lexical[joined].scores))}
        if search == "dense":
            return {"ranks": pack_ranks(evaluation.rank(self._scorer(m, seed, joined)))}
        quality = []
        for each in _WEIGHTS:
            tuning, lexical = self._tuning[joined]
            ranks = tuning.rank(_hybrid(self._scorer(m, seed, joined, is_tuning=True), lexical, each))
            quality.append(float(reciprocals(ranks).mean()))
        weight = _WEIGHTS[int(np.argmax(quality))]
        found = evaluation.rank(_hybrid(self._scorer(m, seed, joined), self._lexical[joined], weight))
        return {"ranks": pack_ranks(found), "weight": weight}

    def _scorer(self, m: int, seed: int, joined: int, *, is_tuning: bool = False) -> Scorer:
        """The scores of a trained model; those last requested are kept."""
        encoded = self._encoded(m, seed, joined, is_tuning)
        return lambda own: score_documents(encoded.queries[own], encoded.documents, None)

    @lru_cache(maxsize=2)  # noqa: B019
    def _encoded(self, m: int, seed: int, joined: int, is_tuning: bool) -> Encoded:
        trained = train_representation(self._training.with_seed(seed), _table(m), self.folder, f"{m}-{seed}")
        return trained.encode(self._tuning[joined][0] if is_tuning else self._evaluations[joined])

    @cached_property
    def _training(self) -> SmallRun:
        """The training, on joined paragraphs if requested: the same paragraphs and questions as of single ones."""
        run, count = self.run, self.args.trained_on
        if count == 1:
            return run
        part = BeirPart(run.data, EXCLUDED_ARTICLES, run.held_out, id_prefix=run.id_prefix, limit=run.n_documents)
        joined = join_documents(articles_of_split_train(part, run.data.name), count)
        folder = write_collection(joined, self.folder / f"joined-{count}" / run.data.name)
        n_tokens = min(count * run.document_tokens, _MOST_TOKENS)
        return replace(run, data=folder, document_tokens=n_tokens, held_out=0, n_documents=None)

    @cached_property
    def _evaluations(self) -> dict[int, Evaluation]:
        return {joined: self._joined(self.evaluation.collection, joined) for joined in self.args.joined}

    @cached_property
    def _lexical(self) -> dict[int, LexicalScores]:
        return {joined: LexicalScores(each.collection) for joined, each in self._evaluations.items()}

    @cached_property
    def _tuning(self) -> dict[int, tuple[Evaluation, LexicalScores]]:
        """Held-out articles, with their questions."""
        collection = held_out_articles(self.run.data.name, self.run.held_out, _TUNING_QUERIES)
        found = {joined: self._joined(collection, joined) for joined in self.args.joined}
        return {joined: (each, LexicalScores(each.collection)) for joined, each in found.items()}

    def _joined(self, collection: Collection, count: int) -> Evaluation:
        n_tokens = min(count * self.evaluation.document_tokens, _MOST_TOKENS)
        return replace(self.evaluation, collection=join_documents(collection, count), document_tokens=n_tokens)

    def table(self, records: Sequence[Record]) -> Iterator[str]:
        """Every model by the number of paragraphs, above one vector and above its parts."""
        yield (
            "| paragraphs | search | vectors | seeds | RR@10 | above one vector (95 %) | above dense (95 %) "
            "| above BM25 (95 %) | MRR@10 in the paper, passages / documents |"
        )
        yield "| ---: | --- | ---: | ---: | ---: | --- | --- | --- | --- |"
        for case in sorted(self.cases(), key=lambda each: (each["paragraphs"], each["search"], each["vectors"])):
            own = select(records, case)
            if not own:
                continue
            search, m = str(case["search"]), int(str(case["vectors"]))
            lexical = select(records, {**case, "search": "bm25", "vectors": 0})
            above = compare(own, select(records, {**case, "vectors": 1})) if m > 1 else ""
            dense = compare(own, select(records, {**case, "search": "dense"})) if search == "hybrid" else ""
            bm25 = compare(own, lexical) if m else ""
            mean = cell(mean_of(own, "rr_10"))
            yield (
                f"| {case['paragraphs']} | {search} | {m or ''} | {len(own)} | {mean} | {above} | {dense} "
                f"| {bm25} | {_PAPER.get((search, m or 1), '')} |"
            )


class LexicalScores:
    """BM25 of all documents (Robertson and Zaragoza 2009), with the terms and settings of the engine.

    Args:
        collection: documents and queries.
    """

    def __init__(self, collection: Collection) -> None:
        analyzer = Analyzer()
        self._n_documents = len(collection.documents)
        self._queries = [analyzer.terms(text) for text in collection.queries.values()]
        counts = [Counter(analyzer.terms(text)) for text in collection.documents.values()]
        lengths = np.array([each.total() for each in counts], np.float64)
        norms = DEFAULT_K1 * (1 - DEFAULT_B + DEFAULT_B * lengths / lengths.mean())
        places: dict[str, list[tuple[int, int]]] = {}
        for document, each in enumerate(counts):
            for term, count in each.items():
                places.setdefault(term, []).append((document, count))
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for term, found in places.items():
            documents, often = np.array(found).T
            idf = np.log(1 + (self._n_documents - len(found) + 0.5) / (len(found) + 0.5))
            self._weights[term] = documents, idf * often / (often + norms[documents])

    def scores(self, own: slice) -> torch.Tensor:
        """Scores for a run of queries: (n, n_documents) float64."""
        queries = self._queries[own]
        scores = np.zeros((len(queries), self._n_documents))
        for row, terms in enumerate(queries):
            for term in terms:
                if term in self._weights:
                    documents, weights = self._weights[term]
                    scores[row, documents] += weights
        return torch.from_numpy(scores)


def _hybrid(dense: Scorer, lexical: LexicalScores, weight: float) -> Scorer:
    """Scores of both, added with a weight of the lexical ones (section 4.1 of Luan et al.)."""
    return lambda own: dense(own) + weight * lexical.scores(own)


def _table(m: int) -> Table:
    return {"name": "first_m", "pooling": "cls", "n_vectors": m, "scale": _SCALE}
