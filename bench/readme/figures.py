"""The main figures: build, search, memory, quality and size, each measured in a fresh process.

On squad and cranfield they are compared with targets, about 12 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.data.collections import data_folder
from bench.data.docstrings import DOCSTRINGS
from bench.harness.environment import circumstances
from bench.harness.records import add_out, write_records

__all__ = ["Figure", "add_arguments", "run"]

Numbers = dict[str, float]
_N_QUERIES = "1000"
_HYBRID_GAIN = 0.03  # above the better of its two parts
_DENSE_GAINS = {"squad": 0.05}  # of passages above one vector per document
_WITH_TARGETS = ("squad", "cranfield")


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: what was measured.
        value: the number.
        unit: of the number.
        target: what it should be at most or at least; None if it is only reported.
        at_most: whether the target is an upper bound.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = True

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or nothing if there is no target."""
        if self.target is None:
            return ""
        return "met" if (self.value <= self.target) == self.at_most or self.value == self.target else "missed"


def figures(folders: Sequence[Path], work: Path) -> Iterator[Figure]:
    """Measure everything, one figure after another: speed and size on the first collection, quality on each."""
    first, *others = folders
    index = str(work / "first")
    speed = _probe("encode", first, 3000)["tokens_per_s"]
    yield Figure("documents encoded", speed, "tokens/s", 20_000, at_most=False)
    yield from _build_figures(first.name, _probe("build", first, index, "pieces"), speed)
    yield from _search_figures(index, first)
    yield from _quality_figures(first, index, work)
    for other in others:
        _probe("build", other, work / "other", "pieces")
        yield from _quality_figures(other, str(work / "other"), work)
    for part, n_bytes in _probe("size_on_disk", index).items():
        yield Figure(f"{first.name}, {part.removesuffix('_bytes_per_doc')}", n_bytes, "bytes per document")
    yield Figure("installed core", _probe("installed")["installed_mib"], "MiB", 280)


def _build_figures(name: str, built: Numbers, tokens_per_s: float) -> Iterator[Figure]:
    encoding_s = built["n_tokens"] / tokens_per_s
    yield Figure(f"build of {name}", built["duration_s"], "s", 240)
    yield Figure(f"build of {name}, all but the encoder", 100 * (1 - encoding_s / built["duration_s"]), "%", 15)
    yield Figure(f"build of {name}, peak RSS", built["peak_rss_mb"], "MB", 1000)
    yield Figure(f"{name}, vectors", built["n_centroids"] / built["n_documents"], "per document")


def _search_figures(index: str, squad: Path) -> Iterator[Figure]:
    times = _probe("latency", index, squad, _N_QUERIES)
    yield Figure("text to 100 hits, dense, p50", times["text_p50_ms"], "ms", 3)
    yield Figure("text to 100 hits, dense, p99", times["text_p99_ms"], "ms")
    yield Figure("text to 100 hits, hybrid, p50", times["hybrid_p50_ms"], "ms", 6)
    yield Figure("text to 100 hits, hybrid, p99", times["hybrid_p99_ms"], "ms")
    yield Figure("vector to 100 hits, p50", times["vector_p50_ms"], "ms", 0.7)
    yield Figure("vector to 100 hits, p99", times["vector_p99_ms"], "ms")
    yield Figure("vector to 10 hits, p50", times["vector_top_10_p50_ms"], "ms")
    same = _probe("agreement", index, squad, _N_QUERIES)
    yield Figure("top 10 as the exact oracle's", 100 * same["same_top_10"], "%", 99, at_most=False)
    yield Figure("top 100 as the exact oracle's", 100 * same["same_top_100"], "%")
    opened = _probe("opening", index)
    yield Figure("open, without the encoder", opened["open_ms"], "ms", 10)
    yield Figure("first answer after open, fresh process", opened["first_answer_ms"], "ms", 400)
    resident = _probe("memory", index, squad)
    yield Figure("RSS after open and 100 queries", resident["rss_mb"], "MB", 250)
    yield Figure("of that not file pages", resident["anonymous_mb"], "MB")


def _quality_figures(collection: Path, index: str, work: Path) -> Iterator[Figure]:
    """Compare passages with one mean vector per document by the same encoder; then lexical and hybrid search."""
    name, gain = collection.name, _DENSE_GAINS.get(collection.name, 0.0)
    plain = str(work / "mean")
    _probe("build", collection, plain, "mean")
    mean = _probe("quality", plain, collection, "dense")
    dense, lexical, hybrid = (
        _probe("quality", index, collection, mode) for mode in ("dense", "lexical", "hybrid")
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


def _probe(*words: object) -> Numbers:
    command = [sys.executable, "-m", "bench.readme.probes", *map(str, words)]
    print("...", *map(str, words), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    numbers: Numbers = json.loads(done.stdout)
    return numbers


def _row(figure: Figure) -> str:
    target = "" if figure.target is None else f"{'<=' if figure.at_most else '>='} {figure.target:.4g}"
    return f"{figure.name:<48} {figure.value:>12.4g} {figure.unit:<18} {target:<12} {figure.verdict}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench figures``."""
    about = "names or paths of folders in BEIR's layout (default: docstrings)"
    parser.add_argument("collections", nargs="*", default=[DOCSTRINGS], metavar="COLLECTION", help=about)
    add_out(parser, "figures", replaces=True)


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the raw results."""
    records = []
    with tempfile.TemporaryDirectory() as work:
        for measured in figures([data_folder(name) for name in options.collections], Path(work)):
            figure = measured if options.collections[0] in _WITH_TARGETS else replace(measured, target=None)
            print(_row(figure), flush=True)
            records.append({**asdict(figure), **circumstances()})
    write_records(options.out, records)
    return 0
