"""Measures how well the relevance of hits tells queries that a collection answers from those of other collections.

``python -m bench relevance COLLECTION COLLECTION ... [--only-measure NAME] [--indexes FOLDER] [--write BUNDLE]``
searches each collection with its own queries and with those of all others, and fits logistic models of the
features in `quarry.formats.bundle.relevance`: positive examples are hits that are judged relevant, negative ones
the first hits of queries of other collections; collections weigh the same, and both kinds within each.

Every collection is measured with a model that was fitted without it, neither as a collection nor as a source of
queries (the typical spread is one value for all): AUC of the largest relevance of the first ten hits, own queries
against foreign ones, beside the AUC of the best score of the mode (fused, cosine, BM25). Foreign queries may
happen to be answered, for example questions about Wikipedia articles by other articles, so 1 cannot be reached.
``--write`` fits on all collections, except those that are only to be measured, and adds the calibration to a
bundle. ``--shipped`` measures the calibration that the bundle has, which may have been fitted on some of the
collections.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.data.collections import Collection, data_folder, read_collection, split_of
from bench.harness.records import add_out, append_result
from quarry import engine
from quarry.engine import Encoder, InvalidSetting, open_encoder
from quarry.engine.choices import Mode
from quarry.engine.lexical.bm25 import Bm25
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.search.candidates import Retriever, rank_candidates
from quarry.engine.search.hits.hit_builder import Answer
from quarry.engine.search.query import Query, give_vectors
from quarry.engine.search.relevance import QueryRelevance, sample_background
from quarry.engine.search.searcher import Searcher
from quarry.formats.bundle.folder import add_bundle_file
from quarry.formats.bundle.relevance import (
    BETWEEN_LANGUAGES,
    RELEVANCE_NAME,
    LogisticModel,
    RelevanceModels,
    write_relevance,
)
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = [
    "Example",
    "Floats",
    "Vectors",
    "add_arguments",
    "area_under_curve",
    "fit_logistic",
    "fit_model",
    "index_collection",
    "run",
    "shipped_models",
]

_MODES: dict[Mode, tuple[str, ...]] = {
    "hybrid": ("dense", "share", "spread"),
    "dense": ("dense", "spread"),
    "lexical": ("share",),
}
_N_HITS = 10
_CACHE_BYTES = 128 << 20
_LEAST_FITTED = 3  # one is left out, and queries of another are foreign to the third
_RIDGE = 1e-3
_STEPS = 50

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]


class Example(NamedTuple):
    """The hits of one query in one collection.

    Attributes:
        collection: that was searched.
        source: collection of the query.
        features: (n_hits,) each, by name; "score" is what the hits are ranked by.
        is_relevant: (n_hits,) bool, whether a hit is judged relevant.
    """

    collection: str
    source: str
    features: Mapping[str, Floats]
    is_relevant: npt.NDArray[np.bool_]

    @property
    def is_own(self) -> bool:
        """Whether the query is of the collection."""
        return self.collection == self.source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench relevance``."""
    about = "names or paths of folders in BEIR's layout, at least three"
    parser.add_argument("collections", nargs="+", metavar="COLLECTION", help=about)
    parser.add_argument("--queries", type=int, default=300, help="of each collection (default: %(default)s)")
    parser.add_argument(
        "--only-measure", action="append", default=[], metavar="NAME", help="a collection that is not fitted on"
    )
    parser.add_argument(
        "--indexes",
        type=Path,
        default=Path(".cache/relevance"),
        help="folder of the indexes, NAME.idx; they are built if they are missing (default: %(default)s)",
    )
    parser.add_argument("--encoder", type=Path, help="a bundle (default: the bundled encoder)")
    parser.add_argument("--write", type=Path, metavar="BUNDLE", help="the folder of a bundle to calibrate")
    parser.add_argument("--shipped", action="store_true", help="measure the calibration that the bundle has")
    add_out(parser, "relevance")


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, append the raw results, write the calibration."""
    collections = [_load(name).subset(None, args.queries) for name in args.collections]
    n_fitted = len({each.name for each in collections} - set(args.only_measure))
    if n_fitted < _LEAST_FITTED and not args.shipped:
        raise InvalidSetting(
            "too few collections to fit on", expected=f"at least {_LEAST_FITTED}", actual=n_fitted
        )
    encoder = open_encoder(args.encoder)
    names = [collection.name for collection in collections]
    shipped = shipped_models(encoder) if args.shipped else None
    fitted = [name for name in names if name not in args.only_measure] if shipped is None else shipped.collections
    paths = {each.name: index_collection(each, encoder, args.indexes) for each in collections}
    vectors = {
        each.name: np.stack([encoder.encode_query(text) for text in each.queries.values()]) for each in collections
    }
    if shipped is None:
        typical: float | None = _typical_spread(fitted, paths, vectors)
    else:
        typical = shipped.typical_spread
    examples = _search_all(collections, paths, vectors, typical)
    print(f"{'AUC':<12} {'mode':<8} {'relevance':>9} {'score':>7} {'answered':>9} {'refused':>8}")
    for mode, features in _MODES.items():
        for name in names:
            model = (
                fit_model(_without(examples[mode], fitted, name), features)
                if shipped is None
                else shipped.models[mode]
            )
            record = _measure([each for each in examples[mode] if each.collection == name], model)
            print(
                f"{name:<12} {mode:<8} {record['auc']:>9.4f} {record['auc_score']:>7.4f}"
                f" {record['answered']:>9.3f} {record['refused']:>8.3f}",
                flush=True,
            )
            about = {"collection": name, "mode": mode, "encoder": encoder.name, "fitted_on": list(fitted)}
            append_result(args.out, {**record, **about, "n_queries": args.queries, "typical_spread": typical})
    if args.write is not None:
        models: dict[str, LogisticModel] = {
            mode: fit_model(_without(examples[mode], fitted, None), features) for mode, features in _MODES.items()
        }
        kept = getattr(encoder, "relevance", None) or RelevanceModels({}, ())
        models |= {name: model for name, model in kept.models.items() if name == BETWEEN_LANGUAGES}
        written = write_relevance(RelevanceModels(models, tuple(fitted), typical))
        add_bundle_file(args.write, RELEVANCE_NAME, written)
    return 0


def shipped_models(encoder: Encoder) -> RelevanceModels:
    """Return the calibration of an encoder.

    Raises:
        InvalidSetting: it has none.
    """
    models = getattr(encoder, "relevance", None)
    if not isinstance(models, RelevanceModels):
        raise InvalidSetting("the encoder has no calibration", expected="a bundle with one", actual=encoder.name)
    return models


def _load(name: str) -> Collection:
    folder = data_folder(name)
    return read_collection(folder, split_of(folder))


def index_collection(collection: Collection, encoder: Encoder, indexes: Path) -> Path:
    """Build the index of a collection unless it is there; return its folder."""
    path = indexes / f"{collection.name}.idx"
    if not path.exists():
        documents = ({"id": key, "text": text} for key, text in collection.documents.items())
        engine.build(list(documents), path, encoder=encoder)
        print(f"indexed {collection.name}", flush=True)
    return path


def _typical_spread(names: Sequence[str], paths: Mapping[str, Path], vectors: Mapping[str, Vectors]) -> float:
    """Return the mean spread of queries, half of them the collection's own and half those of the others.

    One value for all: it hardly counts beside the documents of collections that are not small.
    """
    spreads: dict[bool, list[float]] = {True: [], False: []}
    for name in names:
        with closing(Snapshot(Directory(paths[name]))) as snapshot:
            sample = sample_background(snapshot.segments, Searcher(snapshot, OpenOptions(threads=1)))
            for source in names:
                spreads[source == name].append(float(np.mean([sample.spread(each) for each in vectors[source]])))
    return round(float(np.mean([np.mean(each) for each in spreads.values()])), 4)


def _search_all(
    collections: Sequence[Collection],
    paths: Mapping[str, Path],
    vectors: Mapping[str, Vectors],
    typical_spread: float | None,
) -> dict[str, list[Example]]:
    """Search every collection with the queries of all; return the examples of each mode."""
    examples: dict[str, list[Example]] = {mode: [] for mode in _MODES}
    for collection in collections:
        with closing(Snapshot(Directory(paths[collection.name]))) as snapshot:
            probe = _Probe(snapshot, typical_spread)
            for source in collections:
                for mode in _MODES:
                    examples[mode] += probe.search(mode, collection, source, vectors[source.name])
        print(f"searched {collection.name}", flush=True)
    return examples


class _Probe:
    """Searches one index and returns the features of the hits."""

    def __init__(self, snapshot: Snapshot, typical_spread: float | None) -> None:
        self._snapshot, self._typical_spread = snapshot, typical_spread
        self._dense = Searcher(snapshot, OpenOptions(threads=1))
        self._bm25 = Bm25.of(snapshot, _CACHE_BYTES)
        self._retriever = Retriever(snapshot.segments, self._dense)
        self._sample = sample_background(snapshot.segments, self._dense)

    def search(
        self, mode: Mode, collection: Collection, source: Collection, vectors: Vectors
    ) -> Iterator[Example]:
        """Yield the hits of each query of `source`."""
        options, settings = SearchOptions(k=_N_HITS, mode=mode), self._snapshot.manifest.settings
        queries = [Query(text, settings) for text in source.queries.values()]
        if mode != "lexical":
            give_vectors(queries, vectors)
        everything = [None] * len(self._snapshot.segments)
        by_vectors = self._retriever.rank_by_vectors(queries, options, [everything] * len(queries))
        bm25 = None if mode == "dense" else self._bm25
        for name, query, vector, by_vector in zip(source.queries, queries, vectors, by_vectors, strict=True):
            each = self._retriever.find(query, by_vector, bm25, options, everything)
            judged = collection.qrels.get(name, {}) if source is collection else {}
            answer = Answer(rank_candidates(each, options), query, terms=each.terms)
            yield self._describe(answer, vector, judged, collection.name, source.name)

    def _describe(
        self,
        answer: Answer,
        vector: Vectors,
        judged: Mapping[str, int],
        collection: str,
        source: str,
    ) -> Example:
        ranking = answer.ranking
        n = len(ranking.docs)
        shares, ids = np.zeros(n), [""] * n
        for number, segment in enumerate(self._snapshot.segments):
            places = np.flatnonzero(ranking.segments == number)
            docs = ranking.docs[places]
            if answer.terms is not None:
                shares[places] = answer.terms.shares(number, docs)
            owners = segment.reader.passages.documents_of(docs)
            for place, doc_id in zip(places.tolist(), segment.reader.ids.many(owners), strict=True):
                ids[place] = doc_id
        features = {
            "score": ranking.scores.astype(np.float64),
            "dense": np.zeros(n) if ranking.dense is None else ranking.dense.astype(np.float64),
            "share": shares,
            "spread": np.full(n, self._sample.spread(vector, self._typical_spread)),
        }
        return Example(collection, source, features, np.array([judged.get(doc_id, 0) > 0 for doc_id in ids], bool))


def _without(examples: Sequence[Example], fitted: Sequence[str], left_out: str | None) -> list[Example]:
    kept = {name for name in fitted if name != left_out}
    return [each for each in examples if each.collection in kept and each.source in kept]


def fit_model(examples: Sequence[Example], features: Sequence[str]) -> LogisticModel:
    """Fit a logistic model: relevant hits against the first hits of foreign queries.

    Args:
        examples: hits of own and foreign queries of several collections, which weigh the same.
        features: names of the features.
    """
    rows, labels, groups = [], [], []
    for each in examples:
        chosen = np.flatnonzero(each.is_relevant) if each.is_own else np.arange(min(1, len(each.is_relevant)))
        rows.append(np.stack([each.features[name][chosen] for name in features], axis=1))
        labels += [float(each.is_own)] * len(chosen)
        groups += [(each.collection, each.is_own)] * len(chosen)
    sizes = {group: groups.count(group) for group in dict.fromkeys(groups)}
    weights = np.array([len(groups) / len(sizes) / sizes[group] for group in groups])
    return fit_logistic(np.concatenate(rows), np.array(labels), weights, features)


def fit_logistic(x: Floats, y: Floats, weights: Floats, features: Sequence[str]) -> LogisticModel:
    """Fit a logistic model by Newton's method.

    Args:
        x: (n, n_features) features of the examples.
        y: (n,) whether they are positive, 0 or 1.
        weights: (n,) weights of the examples.
        features: names of the features.
    """
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    design = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    coefficients = np.zeros(design.shape[1])
    ridge = np.append(np.full(len(features), _RIDGE * len(x)), 0.0)
    for _ in range(_STEPS):
        probability = 1 / (1 + np.exp(-design @ coefficients))
        gradient = design.T @ (weights * (probability - y)) + ridge * coefficients
        curvature = (design * (weights * probability * (1 - probability))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(coefficients)), gradient)
        coefficients -= step
        if np.abs(step).max() < 1e-9:
            break
    slopes = coefficients[:-1] / scale
    rounded = {name: round(float(slope), 4) for name, slope in zip(features, slopes, strict=True)}
    return LogisticModel(round(float(coefficients[-1] - slopes @ mean), 4), rounded)


def _measure(examples: Sequence[Example], model: LogisticModel) -> dict[str, object]:
    """Return AUCs, and the shares of queries that are rightly answered and refused at relevance 1/2."""
    relevance = [_largest_relevance(each, model) for each in examples]
    scores = [float(each.features["score"].max(initial=0.0)) for each in examples]
    own = np.array([each.is_own for each in examples])
    values = np.array(relevance)
    return {
        "auc": area_under_curve(values[own], values[~own]),
        "auc_score": area_under_curve(np.array(scores)[own], np.array(scores)[~own]),
        "answered": float((values[own] >= 0.5).mean()),
        "refused": float((values[~own] < 0.5).mean()),
        "intercept": model.intercept,
        "weights": dict(model.weights),
    }


def _largest_relevance(example: Example, model: LogisticModel) -> float:
    n = len(example.is_relevant)
    if not n:
        return 0.0
    prepared = QueryRelevance(model, float(example.features["spread"][0]))
    dense, share = (example.features[name].astype(np.float32) for name in ("dense", "share"))
    return float(prepared.estimate(dense, share, n).max())


def area_under_curve(positive: Floats, negative: Floats) -> float:
    """Return the probability that a positive value is above a negative one; ties count one half."""
    _, places, counts = np.unique(np.concatenate([positive, negative]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    n_positive = len(positive)
    above = ranks[:n_positive].sum() - n_positive * (n_positive + 1) / 2
    return float(above / (n_positive * len(negative)))
