"""Measures quality, speed, memory and bytes of Quarry's settings on one collection: raw results and plots."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from bench.data.collections import add_collection, load_collection
from bench.data.prepare import REPRESENTATIONS, prepare, representation_key
from bench.data.prepared import Prepared, cache_folder
from bench.harness.environment import describe_environment
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.records import Record, add_out, append_record, read_records
from quarry.engine import Mean, Pieces, open_encoder

__all__ = ["IndexSetting", "SearchSetting", "Setting", "add_arguments", "list_settings", "measure_settings", "run"]


@dataclass(frozen=True)
class IndexSetting:
    """Settings of a build.

    Attributes:
        representation: key of the vectors, see `bench.data.prepare.representation_key`.
        build: fields of `quarry.engine.options.BuildOptions`.
        nlist: number of inverted lists; None: as the engine decides.
        lists: whether segments have inverted lists whatever their size; False: as the engine decides.
    """

    representation: str
    build: Mapping[str, object] = field(default_factory=dict)
    nlist: int | None = None
    lists: bool = False


@dataclass(frozen=True)
class SearchSetting:
    """Settings of a search: fields of `quarry.engine.options.SearchOptions`, None for the default."""

    backend: str = "auto"
    nprobe: int | None = None
    candidates: int | None = None


@dataclass(frozen=True)
class Setting:
    """One point of the sweep.

    Attributes:
        axis: what is varied.
        index: how the index is built.
        search: how it is searched.
    """

    axis: str
    index: IndexSetting
    search: SearchSetting

    @property
    def key(self) -> str:
        """A digest of index and search, the same in every run."""
        text = json.dumps([asdict(self.index), asdict(self.search)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_DEFAULT = "pieces-24"
_CODE_BYTES = (8, 12, 16, 24, 32, 48, 64, 96)
_FEW_CODE_BYTES = (8, 24, 48, 96)


def list_settings(keys: list[str], dim: int, *, quick: bool) -> list[Setting]:
    """Return the sweep without duplicates, settings of the same index next to each other.

    Args:
        keys: the keys of the representations.
        dim: dimension of a vector; code sizes that do not divide it are skipped.
        quick: whether to return only a few settings, to try the measurement.
    """
    settings: dict[str, Setting] = {}
    for setting in (_quick_settings if quick else _all_settings)(keys, dim):
        settings.setdefault(setting.key, setting)
    return sorted(settings.values(), key=lambda each: (keys.index(each.index.representation), repr(each.index)))


def _quick_settings(keys: list[str], dim: int) -> Iterator[Setting]:
    sizes = _valid_code_bytes((48,), dim) or [dim // 2]
    for key in keys:
        yield Setting("representation", IndexSetting(key, {"code_bytes": 0}), SearchSetting())
    yield from _code_settings(keys[-1], sizes, "none")
    key = _DEFAULT if _DEFAULT in keys else keys[-1]
    listed = IndexSetting(key, {"code_bytes": sizes[-1]}, nlist=2, lists=True)
    yield from (Setting("nprobe", listed, SearchSetting(nprobe=nprobe)) for nprobe in (1, 2))


def _all_settings(keys: list[str], dim: int) -> Iterator[Setting]:
    for key in keys:
        yield Setting("representation", IndexSetting(key, {"code_bytes": 0}), SearchSetting())
    compared = [key for key in keys if key in ("mean", _DEFAULT, "pieces-64")]
    main = _DEFAULT if _DEFAULT in compared else compared[-1]
    for key in compared:
        yield Setting("precision", IndexSetting(key, {"centroids": "float16"}, lists=True), SearchSetting())
        sizes = _CODE_BYTES if key == main else _FEW_CODE_BYTES
        yield from _code_settings(key, _valid_code_bytes(sizes, dim), "none")
    yield from _code_settings(main, _valid_code_bytes(_FEW_CODE_BYTES, dim), "int8")
    yield Setting("default", IndexSetting(main), SearchSetting())
    default = IndexSetting(main, {}, lists=True)
    yield from _search_settings(default)
    for nlist in (64, 256, 1024):
        narrowed = replace(default, nlist=nlist)
        for nprobe in (1, 4, 16, 64):
            if nprobe <= nlist:
                yield Setting("nlist", narrowed, SearchSetting(nprobe=nprobe))
    for backend in ("scan", "cpu_faiss", "hnsw", "gpu"):  # recall is computed from exact search already
        yield Setting("backend", default, SearchSetting(backend))


def _code_settings(key: str, sizes: list[int], centroids: str) -> Iterator[Setting]:
    """Yield sizes of codes, with or without centroids."""
    axis = "codes alone" if centroids == "none" else "codes and centroids"
    for n_bytes in sizes:
        index = IndexSetting(key, {"code_bytes": n_bytes, "centroids": centroids}, lists=True)
        yield Setting(axis, index, SearchSetting())


def _search_settings(index: IndexSetting) -> Iterator[Setting]:
    for nprobe in (2, 4, 8, 16, 32, 64, 128):
        for candidates in (100, 300) if nprobe != 64 else (50, 100, 300, 1000):
            yield Setting("nprobe and candidates", index, SearchSetting("cpu_faiss", nprobe, candidates))


def _valid_code_bytes(sizes: tuple[int, ...], dim: int) -> list[int]:
    return [n_bytes for n_bytes in sizes if dim % (2 * n_bytes) == 0 and n_bytes <= dim // 2]


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
