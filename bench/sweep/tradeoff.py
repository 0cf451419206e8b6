"""Measures quality, speed, memory and bytes of Quarry's settings on one collection: raw results and plots."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from bench.data.collections import add_collection, load_collection
from bench.data.prepare import REPRESENTATIONS, prepare, representation_key
from bench.data.prepared import Prepared, cache_folder
from bench.harness.environment import describe_environment
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.records import Record, add_out, append_record, read_records
from bench.sweep.grid import IndexSetting, Setting, list_settings
from quarry.engine import Mean, Pieces, open_encoder

__all__ = ["add_arguments", "measure_settings", "run"]

_RESULTS = "tradeoff.jsonl"
_QUICK_QUERIES = 100
_QUICK_REPRESENTATIONS = (Mean(), Pieces(24))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench tradeoff``."""
    add_collection(parser, queries=1000)
    add_out(parser, "tradeoff", is_folder=True)
    parser.add_argument("--quick", action="store_true", help="a few settings and queries: less than 3 minutes")
    parser.add_argument("--encoder", help="bundle folder (default: the bundled encoder)")
    parser.add_argument("--runs", type=Path, help="folder for TREC run files of all settings")


def run(args: argparse.Namespace) -> int:
    """Run the settings that have no result yet, append a record after each, and draw the plots."""
    prepared, keys = _prepare(args)
    settings = list_settings(keys, prepared.query_vectors().shape[1], quick=args.quick)
    results = args.out / _RESULTS
    done = {(record["prepared"], record["key"]) for record in read_records(results) if "skipped" not in record}
    remaining = [each for each in settings if (prepared.folder.name, each.key) not in done]
    print(f"{len(settings)} settings, {len(settings) - len(remaining)} of them done before", file=sys.stderr)
    for record in tqdm(measure_settings(remaining, prepared, args.runs), "settings", len(remaining)):
        append_record(results, record)
        if "skipped" in record:
            print(f"{record['key']} is not measured: {record['skipped']}", file=sys.stderr, flush=True)
    from bench.sweep.plots import draw_tradeoff

    print(draw_tradeoff(args.out, prepared.folder.name))
    return 0


def _prepare(args: argparse.Namespace) -> tuple[Prepared, list[str]]:
    """Return the prepared collection and the keys of its representations."""
    n_queries = min(args.queries, _QUICK_QUERIES) if args.quick else args.queries
    collection = load_collection(args).subset(None, n_queries)
    representations = _QUICK_REPRESENTATIONS if args.quick else REPRESENTATIONS
    prepared = prepare(collection, open_encoder(args.encoder), representations, cache_folder())
    return prepared, [representation_key(each) for each in representations]


def measure_settings(settings: list[Setting], prepared: Prepared, runs: Path | None) -> Iterator[Record]:
    """Yield a record for each setting, with the reason if it cannot be measured.

    Args:
        settings: an index is built once for all consecutive settings with the same one.
        prepared: the collection.
        runs: folder for TREC run files, or None.
    """
    about = {"prepared": prepared.folder.name, **prepared.about(), **describe_environment(), "seed": 0}
    with tempfile.TemporaryDirectory() as folder:
        prober = _Prober(prepared.folder.resolve(), Path(folder) / "index")
        for setting in settings:
            run = str((runs / f"{setting.key}.run").resolve()) if runs else None
            yield {**asdict(setting), "key": setting.key, **about, **prober.measure(setting, run)}


class _Prober:
    """Builds and searches one index after another in the same folder.

    Args:
        prepared: folder of the collection.
        out: folder of the index.
    """

    def __init__(self, prepared: Path, out: Path) -> None:
        self._folders: Record = {"prepared": str(prepared), "out": str(out)}
        self._built_setting: IndexSetting | None = None
        self._built: Record = {}

    def measure(self, setting: Setting, run: str | None) -> Record:
        """Measure one setting; ``run`` is a file for the answers, or None."""
        parameters: Record = {**self._folders, **asdict(setting.index)}
        if self._built_setting != setting.index:
            shutil.rmtree(str(self._folders["out"]), ignore_errors=True)
            self._built_setting, self._built = setting.index, _probe("build_index", parameters)
        if "skipped" in self._built:
            return self._built
        return self._built | _probe("search_index", {**parameters, **asdict(setting.search), "run": run})


def _probe(function: str, parameters: Record) -> Record:
    """Run a function of `bench.sweep.probe`; if it fails, for example without a library, return the reason."""
    try:
        return in_fresh_process(f"bench.sweep.probe:{function}", parameters)
    except ProcessFailed as error:
        return {"skipped": str(error).splitlines()[-1]}
