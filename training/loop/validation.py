"""nDCG@10 of the network as it is, on held-out queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from quarry.engine.evaluation.evaluation import measure_ndcg
from quarry.formats.errors import InvalidSetting
from quarry.training.data.example_store import ExampleStore
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.objective import Objective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["ValidationSet", "make_validation_set", "ndcg_10", "search", "validate"]

_TEXTS_AT_ONCE = 32  # encoded
_DEPTH = 10  # ranks that count in nDCG


@dataclass(frozen=True)
class ValidationSet:
    """Texts to search and to search for.

    Attributes:
        documents: by id.
        queries: by id.
        qrels: for each query id the relevant documents' ids, with score 1.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def make_validation_set(store: ExampleStore, n_documents: int, n_queries: int) -> ValidationSet:
    """Take the first documents of a store, and queries on them at equal distances.

    Raises:
        InvalidSetting: no query is about them.
    """
    kept = min(n_documents, store.n_documents)
    documents = {str(number): store.document(number) for number in range(kept)}
    relevant = {str(each): store.relevant(each).tolist() for each in range(store.n_examples)}
    about = {query: judged for query, judged in relevant.items() if max(judged) < kept}
    if not about:
        raise InvalidSetting("no query is about the documents to validate with", path=store.folder)
    names = list(about)
    count = min(n_queries, len(names))
    chosen = [names[index * len(names) // count] for index in range(count)]
    return ValidationSet(
        documents,
        {query: store.query(int(query)) for query in chosen},
        {query: {str(number): 1 for number in about[query]} for query in chosen},
    )


def validate(
    data: ValidationSet,
    encoders: tuple[EncoderNetwork, EncoderNetwork],
    objective: Objective,
    queries: TextBatcher,
    documents: TextBatcher,
) -> float:
    """Search exactly by the objective's vectors and scores and return nDCG@10.

    Args:
        data: what to search.
        encoders: the encoders of queries and of documents, perhaps the same one.
        objective: makes vectors and scores.
        queries: tokenizes queries.
        documents: tokenizes documents, which are cut as in training.
    """
    return ndcg_10(data.qrels, search(data, encoders, objective, queries, documents))


def search(
    data: ValidationSet,
    encoders: tuple[EncoderNetwork, EncoderNetwork],
    objective: Objective,
    queries: TextBatcher,
    documents: TextBatcher,
) -> dict[str, dict[str, float]]:
    """The first ten documents of every query and their scores; see `validate`."""
    network, document_network = encoders
    was_training = network.model.training
    network.model.eval()
    document_network.model.eval()
    with torch.no_grad():
        parts = []
        for texts in _parts(list(data.documents.values())):
            tokens = documents.batch(texts)
            parts.append(objective.represent_documents(document_network.hidden(tokens), tokens, None))
        run = _search(data, network, objective, queries, DocumentRows.concatenate(parts))
    network.model.train(was_training)
    return run


def _search(
    data: ValidationSet,
    network: EncoderNetwork,
    objective: Objective,
    queries: TextBatcher,
    rows: DocumentRows,
) -> dict[str, dict[str, float]]:
    """The first ten documents of every query and their scores."""
    ids = list(data.documents)
    run: dict[str, dict[str, float]] = {}
    names = iter(data.queries)
    for texts in _parts(list(data.queries.values())):
        tokens = queries.batch(texts)
        scores = objective.scores(objective.represent_queries(network.hidden(tokens), tokens), rows)
        best = scores.topk(min(_DEPTH, len(ids)), dim=1)
        for values, numbers in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            run[next(names)] = {ids[number]: value for number, value in zip(numbers, values, strict=True)}
    return run


def _parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for low in range(0, len(texts), _TEXTS_AT_ONCE):
        yield texts[low : low + _TEXTS_AT_ONCE]


def ndcg_10(qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> float:
    """Compute the mean nDCG@10 over the judged queries, with linear gain, as `bench` and trec_eval define it.

    A document's gain is its judged score, 0 if it is not judged or judged below 0; the discount of rank r is
    log2(r + 1); equal scores are ranked by document id, descending, as in trec_eval.

    Args:
        qrels: for each query id the judged documents' ids and scores; not empty.
        run: for each query id the documents found and their scores, larger is better; nothing was found for a
            query that is missing.
    """
    total = 0.0
    for query, judged in qrels.items():
        scores = run.get(query, {})
        ranking = sorted(scores, key=lambda document: (scores[document], document), reverse=True)
        total += measure_ndcg(ranking, judged, _DEPTH)
    return total / len(qrels)
