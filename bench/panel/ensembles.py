"""What several encoders find together: what an encoder that is trained with them as teachers may find at best.

``python -m bench ensembles ENCODER ...`` searches collections of the panel with each encoder, densely, and adds
the scores of each document by shares in quarters, after each encoder's scores of a collection were centered and
divided by their standard deviation. It prints nDCG@10 of each combination, and how the best mean differs from that
of the first encoder alone. Indexes are those that ``python -m bench panel`` keeps.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.data.prepared import cache_folder
from bench.harness.records import add_out, append_result
from bench.panel.collections import PANEL, Member
from bench.panel.searches import CachedIndexes, ndcg
from bench.panel.statistics import interval_of, judge
from quarry.engine import Engine
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder

__all__ = ["add_arguments", "run", "run_ensembles"]

_LARGE = ("limit", "identifiers")
"""Made by a generator, and large: left out unless they are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench ensembles``."""
    default = [name for name, member in PANEL.items() if member.in_mean and name not in _LARGE]
    parser.add_argument(
        "encoders", nargs="+", metavar="ENCODER", help="folders or names; the first is compared with"
    )
    parser.add_argument("--collections", nargs="+", choices=PANEL, default=default, metavar="COLLECTION")
    parser.add_argument("--quick", action="store_true", help="200 queries of each collection and few documents")
    parser.add_argument("--cache", type=Path, help="folder of indexes (default: the cache of bench)")
    add_out(parser, "ensembles")


def run(args: argparse.Namespace) -> int:
    """Measure, print a row for each combination of shares, and append the raw results."""
    return run_ensembles(args, PANEL, [open_encoder(name) for name in args.encoders])


def run_ensembles(args: argparse.Namespace, panel: Mapping[str, Member], encoders: Sequence[Encoder]) -> int:
    """Measure encoders on collections of a panel; see `run`."""
    shares = [each for each in product(np.arange(0, 1.25, 0.25).tolist(), repeat=len(encoders)) if sum(each) == 1]
    values: dict[tuple[float, ...], dict[str, npt.NDArray[np.float64]]] = {each: {} for each in shares}
    for name in args.collections:
        for each, found in _measure_collection(name, panel[name], encoders, shares, args).items():
            values[each][name] = found
            case = {"collection": name, "encoders": [encoder.name for encoder in encoders], "shares": each}
            append_result(args.out, {**case, "quick": args.quick, **interval_of(found)._asdict()})
    print(f"{'shares':<20}" + "".join(f"{name:>11}" for name in [*args.collections, "mean"]))
    means = {each: [float(found.mean()) for found in of_shares.values()] for each, of_shares in values.items()}
    for each, row in means.items():
        print(f"{each!s:<20}" + "".join(f"{value:>11.4f}" for value in [*row, np.mean(row)]))
    best = max(means, key=lambda each: float(np.mean(means[each])))
    alone = (1.0, *[0.0] * (len(encoders) - 1))
    mean, low, high = judge(values[alone], values[best], args.collections).mean
    print(f"{best} against {alone}: {mean:+.4f} ({low:+.4f}, {high:+.4f})")
    return 0


def _measure_collection(
    name: str,
    member: Member,
    encoders: Sequence[Encoder],
    shares: Sequence[tuple[float, ...]],
    args: argparse.Namespace,
) -> dict[tuple[float, ...], npt.NDArray[np.float64]]:
    """Return nDCG@10 of each query of a collection, by the shares of the encoders."""
    collection = member.collection(name, is_quick=args.quick)
    numbers = {key: number for number, key in enumerate(collection.documents)}
    scores = np.zeros((len(encoders), len(collection.queries), len(numbers)))
    for of_encoder, encoder in zip(scores, encoders, strict=True):
        indexes = CachedIndexes(
            collection, member.language, encoder, (args.cache or cache_folder() / "panel") / "indexes"
        )
        with Engine.open(indexes.path("vectors"), encoder=encoder, threads=1) as index:
            for row, text in zip(of_encoder, collection.queries.values(), strict=True):
                for hit in index.search(text, len(numbers), mode="dense"):
                    row[numbers[hit.id]] = hit.score
    scores -= scores.mean((1, 2), keepdims=True)
    scores /= np.maximum(scores.std((1, 2), keepdims=True), np.finfo(float).tiny)
    ids = list(numbers)
    found = {}
    for each in shares:
        ranked = {
            query: {ids[number]: float(row[number]) for number in np.argsort(-row, kind="stable")[:10]}
            for query, row in zip(collection.queries, np.tensordot(each, scores, 1), strict=True)
        }
        found[each] = np.array(list(ndcg(collection, ranked).values()))
    return found
