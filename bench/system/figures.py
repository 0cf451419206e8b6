"""Measures the main figures: build, search, memory, quality and size, each in a new process.

On squad and cranfield they are compared with targets; that takes about 12 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from bench.data.collections import DOCSTRINGS, data_folder, read_collection, split_of
from bench.harness.fresh_process import in_fresh_process
from bench.harness.records import add_out, append_result

__all__ = ["Figure", "add_arguments", "run"]

Numbers = dict[str, float]
_HYBRID_GAIN = 0.03  # over the better of dense and lexical
_DENSE_GAINS = {"squad": 0.05}  # of passages over one vector per document
_WITH_TARGETS = ("squad", "cranfield")
_N_STARTS = 11
_N_MEMORY_QUERIES = 100


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: what was measured.
        value: the value.
        unit: the unit of the value.
        target: what the value should be at most or at least; None: no target.
        at_most: whether the target is an upper bound.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = True

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or an empty string without a target."""
        if self.target is None:
            return ""
        return "met" if (self.value <= self.target) == self.at_most or self.value == self.target else "missed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench figures``."""
    about = "names or paths of folders in BEIR's layout (default: docstrings)"
    parser.add_argument("collections", nargs="*", default=[DOCSTRINGS], metavar="COLLECTION", help=about)
    add_out(parser, "figures")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the raw results."""
    with tempfile.TemporaryDirectory() as work:
        for measured in _measure([data_folder(name).resolve() for name in args.collections], Path(work)):
            figure = measured if args.collections[0] in _WITH_TARGETS else replace(measured, target=None)
            print(_format_row(figure), flush=True)
            append_result(args.out, asdict(figure))
    return 0


def _measure(folders: Sequence[Path], work: Path) -> Iterator[Figure]:
    """Yield speed and size of the first collection and the quality of each."""
    first, *others = folders
    index = work / "first"
    tokens_per_s = _probe("encode", collection=first)["tokens_per_s"]
    yield Figure("documents encoded", tokens_per_s, "tokens/s", 20_000, at_most=False)
    built = _probe("build", collection=first, index=index, representation="pieces")
    yield from _build_figures(first.name, built, tokens_per_s)
    yield from _search_figures(index, first)
    yield from _quality_figures(first, index, work)
    for other in others:
        _probe("build", collection=other, index=work / "other", representation="pieces")
        yield from _quality_figures(other, work / "other", work)
    for part, n_bytes in _probe("size_on_disk", index=index).items():
        yield Figure(f"{first.name}, {part}", n_bytes, "bytes per document")
    yield Figure("installed core", _probe("installed")["installed_mib"], "MiB", 280)


def _build_figures(name: str, built: Numbers, tokens_per_s: float) -> Iterator[Figure]:
    encoding_s = built["n_tokens"] / tokens_per_s
    yield Figure(f"build of {name}", built["duration_s"], "s", 240)
    yield Figure(f"build of {name}, all but the encoder", 100 * (1 - encoding_s / built["duration_s"]), "%", 15)
    yield Figure(f"build of {name}, peak RSS", built["peak_rss_mb"], "MB", 1000)
    yield Figure(f"{name}, vectors", built["n_centroids"] / built["n_documents"], "per document")


def _search_figures(index: Path, folder: Path) -> Iterator[Figure]:
    times = _probe("latency", index=index, collection=folder)
    yield Figure("text to 100 hits, dense, p50", times["text_p50_ms"], "ms", 3)
    yield Figure("text to 100 hits, dense, p99", times["text_p99_ms"], "ms")
    yield Figure("text to 100 hits, hybrid, p50", times["hybrid_p50_ms"], "ms", 6)
    yield Figure("text to 100 hits, hybrid, p99", times["hybrid_p99_ms"], "ms")
    yield Figure("vector to 100 hits, p50", times["vector_p50_ms"], "ms", 0.7)
    yield Figure("vector to 100 hits, p99", times["vector_p99_ms"], "ms")
    yield Figure("vector to 10 hits, p50", times["vector_top_10_p50_ms"], "ms")
    same = _probe("agreement", index=index, collection=folder)
    yield Figure("top 10 as the exact oracle's", 100 * same["same_top_10"], "%", 99, at_most=False)
    yield Figure("top 100 as the exact oracle's", 100 * same["same_top_100"], "%")
    starts = [_probe("opening", index=index) for _ in range(_N_STARTS)]
    open_ms, first_answer_ms = (
        statistics.median(each[name] for each in starts) for name in ("open_ms", "first_answer_ms")
    )
    yield Figure("open, without the encoder", open_ms, "ms", 10)
    yield Figure("first answer after open, fresh process", first_answer_ms, "ms", 400)
    queries = read_collection(folder, split_of(folder)).subset(None, _N_MEMORY_QUERIES).queries
    resident = _probe("memory", index=index, queries=list(queries.values()))
    yield Figure("RSS after open and 100 queries", resident["rss_mb"], "MB", 250)
    yield Figure("of that not file pages", resident["anonymous_mb"], "MB")


def _quality_figures(folder: Path, index: Path, work: Path) -> Iterator[Figure]:
    """Yield the quality of one mean vector per document by the same encoder, and of passages in each mode."""
    name, gain = folder.name, _DENSE_GAINS.get(folder.name, 0.0)
    _probe("build", collection=folder, index=work / "mean", representation="mean")
    mean = _probe("quality", index=work / "mean", collection=folder, mode="dense")
    dense, lexical, hybrid = (
        _probe("quality", index=index, collection=folder, mode=mode) for mode in ("dense", "lexical", "hybrid")
    )
    better = max(dense["ndcg_10"], lexical["ndcg_10"])
    for label, numbers, target in (
        ("one mean vector", mean, None),
        ("dense", dense, mean["ndcg_10"] + gain),
        ("lexical", lexical, None),
        ("hybrid", hybrid, better + _HYBRID_GAIN),
    ):
        yield Figure(f"{name}, nDCG@10, {label}", numbers["ndcg_10"], "linear gain", target, at_most=False)
        yield Figure(f"{name}, nDCG@10, {label}, gain 2^g-1", numbers["ndcg_exp_10"], "2^g-1 gain")
        yield Figure(f"{name}, R@100, {label}", numbers["recall_100"], "")


def _probe(name: str, **parameters: object) -> Numbers:
    print("...", name, file=sys.stderr, flush=True)
    values = {key: str(value) if isinstance(value, Path) else value for key, value in parameters.items()}
    return cast(Numbers, in_fresh_process(f"bench.system.probes:{name}", values))


def _format_row(figure: Figure) -> str:
    target = "" if figure.target is None else f"{'<=' if figure.at_most else '>='} {figure.target:.4g}"
    return f"{figure.name:<48} {figure.value:>12.4g} {figure.unit:<18} {target:<12} {figure.verdict}"
