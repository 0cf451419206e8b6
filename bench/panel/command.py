"""Quality and processor time of all searches on many collections, in one table.

``python -m bench panel`` measures every search of every collection, prints a row for each collection and the
mean, and appends one JSON line for each search to a file. Indexes and finished results are kept in a folder, so a
run that was stopped continues where it was; ``--quick`` takes 200 queries of each collection and few documents.

``--set`` changes how the engine ranks: an option of `Engine.search` (``--set dense_weight=.6``) or of a build
(``--set passage_words=None``), or, by its dotted name, a constant of Quarry (``--set
engine.search.fusion._RANK_OFFSET=30``). Such a run gets a name by ``--label``, and ``--against`` compares it with
the run of another label: a paired bootstrap for each collection, and whether the change stays by the rule of
`bench.panel.statistics`. Results are kept, so changed code needs another label.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.data.prepared import cache_folder, write_json
from bench.harness.records import add_out, append_result
from bench.panel.collections import PANEL, Member
from bench.panel.searches import SEARCHES, CachedIndexes, Measured, changed_constants, measure
from bench.panel.statistics import Values, interval_of, judge, mean_interval
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.options import BuildKeywords

__all__ = ["add_arguments", "run", "run_panel"]

_DEFAULT = "default"
Results = dict[str, dict[str, Measured]]
"""What was measured, by search and collection."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench panel``."""
    parser.add_argument("collections", nargs="*", metavar="COLLECTION", help=f"default: all ({', '.join(PANEL)})")
    parser.add_argument("--quick", action="store_true", help="200 queries of each collection and few documents")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES), help="default: all")
    parser.add_argument("--encoder", help="folder or name of a bundle; default: the default encoder")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="options or constants")
    parser.add_argument("--label", default=_DEFAULT, help="name of the run (default: %(default)s)")
    parser.add_argument("--against", metavar="LABEL", help="the run to compare with")
    parser.add_argument("--cache", type=Path, help="folder of indexes and results (default: the cache of bench)")
    add_out(parser, "panel")


def run(args: argparse.Namespace) -> int:
    """Measure, print tables and append the raw results; 1 if a collection that was asked for is missing."""
    return run_panel(args, PANEL, open_encoder(args.encoder))


def run_panel(args: argparse.Namespace, panel: Mapping[str, Member], encoder: Encoder) -> int:
    """Measure a panel with an encoder; see `run`."""
    cache = args.cache or cache_folder() / "panel"
    unknown = [name for name in args.collections if name not in panel]
    if unknown:
        print(f"no collection {unknown[0]!r}; there are {', '.join(panel)}")
        return 1
    results: Results = {search: {} for search in args.searches}
    missing = []
    print(f"{'nDCG@10, 95 %':<12}" + "".join(f"{search:>22}" for search in args.searches))
    for name in args.collections or panel:
        try:
            row = _measure_collection(name, panel[name], encoder, args, cache)
        except FileNotFoundError as error:
            print(f"{name}: skipped, its data is missing: {error}", flush=True)
            missing.append(name)
            continue
        for search, measured in row.items():
            results[search][name] = measured
        cells = (f"{_cell(interval_of(_values(each)))}" for each in row.values())
        print(f"{name:<12}" + "".join(cells), flush=True)
    _print_means(results, panel)
    if args.against:
        for search, measured_now in results.items():
            before = {
                name: _load(_results_folder(cache, args.against, args.quick) / name / f"{search}.json")
                for name in measured_now
            }
            _print_verdict(search, {name: each for name, each in before.items() if each}, measured_now, panel)
    return 1 if missing and args.collections else 0


def _measure_collection(
    name: str, member: Member, encoder: Encoder, args: argparse.Namespace, cache: Path
) -> dict[str, Measured]:
    """Return the results of the searches of a collection, those that are kept or new ones."""
    changes = {key: _parse(value) for key, _, value in (each.partition("=") for each in args.set)}
    constants = {key: value for key, value in changes.items() if "." in key}
    settings = {key: value for key, value in changes.items() if key in BuildKeywords.__annotations__}
    options = {key: value for key, value in changes.items() if "." not in key and key not in settings}
    collection = member.collection(name, is_quick=args.quick)
    indexes = CachedIndexes(collection, member.language, encoder, cache / "indexes", settings)
    folder = _results_folder(cache, args.label, args.quick) / name
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "changes": changes,
        "encoder": encoder.name,
        "encoder_identity": encoder.identity,
        "n_documents": len(collection.documents),
        "n_queries": len(collection.queries),
    }
    row: dict[str, Measured] = {}
    for search in args.searches:
        path = folder / f"{search}.json"
        loaded = _load(path, about)
        if loaded is None:
            with changed_constants(constants):
                loaded = measure(search, indexes, options)
            write_json(path, {**loaded._asdict(), "about": about})
            interval = interval_of(_values(loaded))._asdict()
            case = {"label": args.label, "quick": args.quick, "collection": name, "search": search}
            append_result(args.out, {**case, **about, **interval, "cpu_ms": loaded.cpu_ms})
        row[search] = loaded
    return row


def _results_folder(cache: Path, label: str, is_quick: bool) -> Path:
    return cache / "results" / (f"{label}-quick" if is_quick else label)


def _load(path: Path, about: Mapping[str, object] | None = None) -> Measured | None:
    """Return a result that is kept; None without one, or if it is of another encoder, collection or change."""
    if not path.exists():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    if about is not None and kept["about"] != about:
        return None
    return Measured(kept["ndcg"], kept["cpu_ms"])


def _parse(value: str) -> Any:  # noqa: ANN401
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _values(measured: Measured) -> Values:
    return np.array(list(measured.ndcg.values()))


def _cell(interval: tuple[float, float, float]) -> str:
    return "{:>8.4f} ({:.3f}, {:.3f})".format(*interval)


def _print_means(results: Results, panel: Mapping[str, Member]) -> None:
    """Print the mean over collections, that over those beside it, and processor times."""
    for title, in_mean in (("mean", True), ("others", False)):
        rows = [
            [each for name, each in of_search.items() if panel[name].in_mean is in_mean]
            for of_search in results.values()
        ]
        if rows[0]:
            cells = (_cell(mean_interval([_values(each) for each in column])) for column in rows)
            print(f"{title:<12}" + "".join(cells))
            times = (float(np.mean([each.cpu_ms for each in column])) for column in rows)
            print(f"{'  ms a query':<12}" + "".join(f"{each:>22.2f}" for each in times), flush=True)


def _print_verdict(
    search: str, before: Mapping[str, Measured], after: Mapping[str, Measured], panel: Mapping[str, Member]
) -> None:
    """Print how a search changed, on the collections that both runs have."""
    names = [name for name in after if name in before and after[name].ndcg.keys() == before[name].ndcg.keys()]
    in_mean = [name for name in names if panel[name].in_mean]
    if not in_mean:
        print(f"{search}: no collection of the mean was measured in both runs")
        return
    verdict = judge(
        {name: _values(before[name]) for name in names},
        {name: np.array([after[name].ndcg[query] for query in before[name].ndcg]) for name in names},
        in_mean,
    )
    print(f"\n{search}: change of nDCG@10, paired, 95 %")
    for name, (mean, low, high) in {**verdict.changes, "mean": verdict.mean}.items():
        falls = "  falls" if name in verdict.falls else ""
        print(f"{name:<12}{mean:>+9.4f} ({low:+.4f}, {high:+.4f}){falls}")
    times = [float(np.mean([run[name].cpu_ms for name in in_mean])) for run in (before, after)]
    print(f"processor time {times[0]:.2f} -> {times[1]:.2f} ms; the rule: {'stays' if verdict.stays else 'fails'}")
