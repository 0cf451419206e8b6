"""What the wording of texts adds to hybrid search, by the weight of dense scores.

``python -m bench wording`` indexes collections with the bundled encoder, finds the candidates of hybrid
searches and fuses their scores with several weights, with the scores of wording and without them (see
`quarry.engine.lexical.wording`). The engine's weight was chosen with the result.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from bench.data.collections import Collection
from bench.data.evaluation_collections import COLLECTIONS, SMALL_COLLECTIONS, pairs_collection
from bench.data.quality import Quality, measure_quality
from bench.harness.records import add_out, append_result
from quarry.engine import build
from quarry.engine.choices import Fusion
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.search.fusion import fuse
from quarry.engine.search.id_order import IdOrder
from quarry.engine.search.retriever import Pool, Retriever
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["WEIGHTS", "add_arguments", "measure", "run"]

WEIGHTS = (0.4, 0.45, 0.5, 0.55, 0.6, 0.7)
_PAIRS = {name: partial(pairs_collection, name, 4000) for name in ("qed_nq", "nq_oracle", "pubmedqa", "scitldr")}
_COLLECTIONS: dict[str, Callable[[], Collection]] = COLLECTIONS | _PAIRS
_N_HITS = 100
_TIMED = 200
_CACHE_BYTES = 128 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench wording``."""
    parser.add_argument(
        "--on", choices=_COLLECTIONS, action="append", help="may be repeated; default: the small ones and pairs"
    )
    add_out(parser, "wording")


def run(args: argparse.Namespace) -> int:
    """Measure every weight with the wording and without it, print two lines and append the raw results."""
    encoder = open_encoder()
    for name in args.on or [*SMALL_COLLECTIONS, *_PAIRS]:
        collection = _COLLECTIONS[name]()
        about = {
            "collection": name,
            "n_documents": len(collection.documents),
            "n_queries": len(collection.queries),
        }
        about |= {"encoder": encoder.name, "encoder_identity": encoder.identity}
        found, added_ms = measure(collection, encoder)
        for has_wording in (False, True):
            qualities = {weight: found[has_wording, weight] for weight in WEIGHTS}
            for weight, quality in qualities.items():
                case = {"wording": has_wording, "dense_weight": weight, "added_ms": added_ms}
                append_result(args.out, {**about, **case, **asdict(quality)})
            shown = "  ".join(f"{weight}: {quality.ndcg_10:.4f}" for weight, quality in qualities.items())
            print(f"{name:<12} {'with' if has_wording else 'without':<8} {shown}", flush=True)
        print(f"{name:<12} reading texts takes {added_ms:.2f} ms", flush=True)
    return 0


def measure(collection: Collection, encoder: Encoder) -> tuple[Mapping[tuple[bool, float], Quality], float]:
    """Return the quality with the wording or without it by weight, and the median time that it takes, in ms."""
    vectors = np.stack([encoder.encode_query(text) for text in collection.queries.values()])
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        documents = ({"id": key, "text": text} for key, text in collection.documents.items())
        build(documents, index, encoder=encoder, progress=False)
        snapshot = Snapshot(Directory(index))
        try:
            return _search(collection, vectors, snapshot)
        finally:
            snapshot.close()


def _search(
    collection: Collection, vectors: np.ndarray, snapshot: Snapshot
) -> tuple[Mapping[tuple[bool, float], Quality], float]:
    dense = Searcher(snapshot, OpenOptions(threads=1))
    retriever = Retriever(snapshot.segments, dense, LexicalSearcher(snapshot, _CACHE_BYTES))
    order = IdOrder(snapshot.segments)
    everything = [None] * len(snapshot.segments)

    def find(place: int, text: str, fusion: Fusion = "linear") -> tuple[Pool, float]:
        options = SearchOptions(k=_N_HITS, fusion=fusion)
        started = time.perf_counter()
        ((_, _, pool),) = retriever.find_pools([text], vectors[place : place + 1], options, everything)
        return pool, 1000 * (time.perf_counter() - started)

    runs: dict[tuple[bool, float], dict[str, dict[str, float]]] = {
        (has_wording, weight): {} for has_wording in (False, True) for weight in WEIGHTS
    }
    added: list[float] = []
    for place, (query, text) in enumerate(collection.queries.items()):
        pool, _ = find(place, text)
        if place < _TIMED:  # once more, since the first one has decoded the postings of the terms
            added.append(find(place, text)[1] - find(place, text, "rrf")[1])
        names = order.read_ids(pool.segments, pool.docs)
        for (has_wording, weight), found in runs.items():
            wording = pool.wording if has_wording else None
            scores = fuse(pool.dense, pool.lexical, "linear", weight, wording)
            best = np.argsort(-scores, kind="stable")[:_N_HITS].tolist()
            found[query] = {names[number]: float(scores[number]) for number in best}
    qualities = {way: measure_quality(collection.qrels, found) for way, found in runs.items()}
    return qualities, statistics.median(added)
