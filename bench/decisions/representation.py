"""Compares representations: quality by number of vectors, with exact search over fp32 centroids.

``python -m bench representation squad --documents 6000 --queries 1000 --out FILE`` prints a table and appends
one JSON line for each representation to FILE. Every document is encoded once for all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import Quality, measure_quality
from bench.harness.environment import circumstances
from bench.harness.records import add_out, append_record
from quarry.engine.encoding.encoder import Encoder, open_encoder
from quarry.engine.representation.base import Representation
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean
from quarry.engine.scoring.aggregation import aggregate

__all__ = ["COMPARED", "Measured", "add_arguments", "measure", "run"]

COMPARED: tuple[Representation, ...] = (
    Mean(),
    Cls(),
    *(Pieces(tokens) for tokens in (16, 20, 24, 28, 32, 40, 48, 64, 96)),
    *(KMeans(centroids) for centroids in (4, 8)),
    FirstM(8),
)

_N_HITS = 100
_QUERIES_AT_ONCE = 64


@dataclass(frozen=True)
class Measured:
    """What one representation gave on one collection.

    Attributes:
        representation: its name.
        settings: its fields.
        n_documents: documents searched.
        n_queries: queries asked.
        vectors_a_document: mean number of centroids.
        represent_us: mean time to make a document's centroids of its token vectors, in microseconds.
        quality: of the first 100 documents of every query.
    """

    representation: str
    settings: dict[str, int]
    n_documents: int
    n_queries: int
    vectors_a_document: float
    represent_us: float
    quality: Quality


@dataclass
class _Shelf:
    """The centroids of all documents by one representation."""

    representation: Representation
    values: list[npt.NDArray[np.float32]] = field(default_factory=list)
    duration_s: float = 0.0


def measure(
    collection: Collection, encoder: Encoder, representations: Sequence[Representation]
) -> Iterator[Measured]:
    """Compare representations of one collection by one encoder.

    Args:
        collection: documents, queries and judgments.
        encoder: makes token vectors and query vectors; says whether vectors are normalized.
        representations: what to compare.

    Yields:
        One result for each representation, in their order.
    """
    shelves = [_Shelf(representation) for representation in representations]
    for text in collection.documents.values():
        windows = list(encoder.windows(text))
        for shelf in shelves:
            start = time.perf_counter()
            vectors = shelf.representation.represent(text, windows, encoder.normalize)
            shelf.duration_s += time.perf_counter() - start
            shelf.values.append(vectors.values)
    queries = np.stack([encoder.encode_query(text) for text in collection.queries.values()])
    for shelf in shelves:
        yield _measured(collection, queries, shelf)


def _measured(collection: Collection, queries: npt.NDArray[np.float32], shelf: _Shelf) -> Measured:
    values = np.concatenate(shelf.values)
    offsets = np.cumsum([0, *map(len, shelf.values)])
    n_documents = len(collection.documents)
    return Measured(
        representation=shelf.representation.name,
        settings=shelf.representation.settings(),
        n_documents=n_documents,
        n_queries=len(queries),
        vectors_a_document=len(values) / n_documents,
        represent_us=shelf.duration_s / n_documents * 1e6,
        quality=measure_quality(collection.qrels, _run(collection, queries, values, offsets)),
    )


def _run(
    collection: Collection,
    queries: npt.NDArray[np.float32],
    values: npt.NDArray[np.float32],
    offsets: npt.NDArray[np.int64],
) -> dict[str, dict[str, float]]:
    """Search exactly: the first 100 documents of every query, by their best centroid."""
    document_ids = list(collection.documents)
    run: dict[str, dict[str, float]] = {}
    for query, scores in zip(collection.queries, _document_scores(queries, values, offsets), strict=True):
        best = np.argsort(-scores, kind="stable")[:_N_HITS]
        run[query] = {document_ids[ordinal]: float(scores[ordinal]) for ordinal in best.tolist()}
    return run


def _document_scores(
    queries: npt.NDArray[np.float32], values: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[np.float32]]:
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        for scores in queries[first : first + _QUERIES_AT_ONCE] @ values.T:
            yield aggregate(scores, offsets, None)


def _table_row(result: Measured) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in result.settings.items())
    quality = " ".join(f"{value:>8.4f}" for value in asdict(result.quality).values())
    label = f"{result.representation} {settings}"
    return f"{label:<28} {result.vectors_a_document:>8.2f} {quality} {result.represent_us:>8.0f}"


def _circumstances(collection: Collection, encoder: Encoder) -> dict[str, object]:
    """Describe what a reader needs to know to repeat a measurement."""
    return {
        "collection": collection.name,
        "split": collection.split,
        "encoder": encoder.name,
        "encoder_identity": encoder.identity,
        "aggregation": "max",
        **circumstances(),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench representation``."""
    add_collection(parser)
    parser.add_argument("--encoder", help="bundle folder; left out: the bundled encoder")
    add_out(parser, "representation")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the results to a file."""
    collection = load_collection(options)
    encoder = open_encoder(options.encoder)
    about = _circumstances(collection, encoder)
    print(f"{collection.name}: {len(collection.documents)} documents, {len(collection.queries)} queries")
    print(f"{'':<28} {'vectors':>8} {'nDCG@10':>8} {'(2^g-1)':>8} {'R@100':>8} {'RR@10':>8} {'us/doc':>8}")
    for result in measure(collection, encoder, COMPARED):
        print(_table_row(result), flush=True)
        append_record(options.out, {**about, **asdict(result)})
    return 0
