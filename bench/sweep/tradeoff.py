"""Quality, speed, memory and bytes of Quarry's settings on one collection: raw results and plots.

The collection `synthetic` is 100,000 documents (or ``--documents``) of random vectors: only recall and speed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.data.collections import add_collection, load_collection
from bench.data.prepare import prepare, representation_key
from bench.data.prepared import Prepared, cache_folder
from bench.data.synthetic import SYNTHETIC, prepare_synthetic
from bench.harness.environment import circumstances
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.progress import Clock
from bench.harness.records import Record, add_out, append_record, read_records
from bench.sweep.grid import IndexSetting, LibraryCodes, Setting, representations, settings
from quarry.engine.encoding.encoder import open_encoder

__all__ = ["add_arguments", "measured", "run"]

_RESULTS = "tradeoff.jsonl"
_QUICK_QUERIES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench tradeoff``."""
    add_collection(parser, queries=1000)  # or: synthetic
    add_out(parser, "tradeoff", is_folder=True)
    parser.add_argument("--quick", action="store_true", help="a few settings, few queries: under 3 minutes")
    parser.add_argument("--encoder", help="bundle folder; left out: the bundled encoder")
    parser.add_argument("--dim", type=int, default=384, help="synthetic: dimension of a vector")
    parser.add_argument("--intrinsic-dim", type=int, default=32, help="synthetic: dimensions of their subspace")
    parser.add_argument("--runs", type=Path, help="folder for the answers of every setting, as TREC run files")


def run(args: argparse.Namespace) -> int:
    """Run the sweep, or what is left of it, and draw the plots; results are appended setting by setting."""
    prepared = _prepared(args)
    dim = prepared.query_vectors().shape[1]
    keys = _keys(args)
    wanted = settings(keys, dim, quick=args.quick)
    results = args.out / _RESULTS
    done = {(record["prepared"], record["key"]) for record in read_records(results) if "skipped" not in record}
    left = [each for each in wanted if (prepared.folder.name, each.key) not in done]
    print(f"{len(wanted)} settings, {len(wanted) - len(left)} of them done before", file=sys.stderr)
    clock = Clock(len(left), "settings")
    for record in measured(left, prepared, args.runs):
        append_record(results, record)
        clock.tick()
    from bench.sweep.plots import draw_tradeoff

    print(draw_tradeoff(args.out, prepared.folder.name))
    return 0


def _prepared(args: argparse.Namespace) -> Prepared:
    n_queries = min(args.queries, _QUICK_QUERIES) if args.quick else args.queries
    if args.collection == SYNTHETIC:
        n_documents = args.documents or 100_000
        return prepare_synthetic(n_documents, n_queries, args.dim, args.intrinsic_dim, cache_folder())
    collection = load_collection(args).subset(None, n_queries)
    return prepare(collection, open_encoder(args.encoder), representations(quick=args.quick), cache_folder())


def _keys(args: argparse.Namespace) -> list[str]:
    if args.collection == SYNTHETIC:
        return [SYNTHETIC]
    return [representation_key(each) for each in representations(quick=args.quick)]


def measured(left: list[Setting], prepared: Prepared, runs: Path | None) -> Iterator[Record]:
    """A record for each setting, with the reason where it cannot be measured.

    Args:
        left: what to measure; an index is built once for all settings next to each other that search it.
        prepared: the collection.
        runs: folder for the answers as TREC run files, or None.
    """
    about = {"prepared": prepared.folder.name, **prepared.about(), **circumstances(), "seed": 0}
    with tempfile.TemporaryDirectory() as folder:
        bench = _Workbench(prepared.folder.resolve(), Path(folder) / "index")
        for setting in left:
            run = str((runs / f"{setting.key}.run").resolve()) if runs else None
            yield {**asdict(setting), "key": setting.key, **about, **bench.numbers(setting, run)}


class _Workbench:
    """Builds and searches one index after another in one place.

    Args:
        prepared: folder of the collection.
        out: where the index is.
    """

    def __init__(self, prepared: Path, out: Path) -> None:
        self._prepared = prepared
        self._out = out
        self._setting: IndexSetting | None = None
        self._built: Record = {}

    def numbers(self, setting: Setting, run: str | None) -> Record:
        """What one setting gives; ``run``: a file for its answers."""
        places: Record = {"prepared": str(self._prepared), "out": str(self._out), **asdict(setting.index)}
        if isinstance(setting.index, LibraryCodes):
            return _measured("bench.sweep.faiss_codes:measure", places)
        if self._setting != setting.index:
            shutil.rmtree(self._out, ignore_errors=True)
            self._setting, self._built = setting.index, _measured("bench.sweep.probe:build_index", places)
        if "skipped" in self._built:
            return self._built
        return self._built | _measured(
            "bench.sweep.probe:search_index", {**places, **asdict(setting.search), "run": run}
        )


def _measured(target: str, parameters: Record) -> Record:
    """The numbers of one step, or why there are none: a backend may be missing here."""
    try:
        return in_fresh_process(target, parameters)
    except ProcessFailed as error:
        return {"skipped": str(error).splitlines()[-1]}
