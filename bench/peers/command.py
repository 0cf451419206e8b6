"""Compares Quarry with other libraries on the same collection, encoder, vectors and queries.

Other libraries get one mean vector per document. Their build from text is the time to encode all documents on all
cores with Quarry's encoder (measured once) plus the time to build from the vectors. For Quarry it is one
`engine.build`, measured for two of its settings; the other settings are built from vectors, without spans (about
30 bytes per document).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import cast

from tqdm import tqdm

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.prepare import prepare
from bench.data.prepared import Prepared, cache_folder
from bench.data.quality import measure_quality, read_run
from bench.harness.environment import describe_environment
from bench.harness.fresh_process import ROOT, ProcessFailed, in_fresh_process
from bench.harness.records import Record, add_out, append_record, read_records
from bench.peers.registry import CORE_REQUIREMENTS, PEERS, QUARRY, Entry, environment_python
from quarry.engine import InvalidSetting, Mean, Pieces, open_encoder
from quarry.engine.process.cpus import n_cpus

__all__ = ["add_arguments", "run"]

_RESULTS = "peers.jsonl"
_N_TIMED = 300
_REPRESENTATIONS = (Mean(), Pieces(24), Pieces(64))  # that the rows need


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench peers``."""
    add_collection(parser, queries=1000)
    add_out(parser, "peers", is_folder=True)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose names contain one of these")
    parser.add_argument("--install", action="store_true", help="create missing environments first")


def run(args: argparse.Namespace, peers: tuple[Entry, ...] = PEERS) -> int:
    """Measure every row that has no result yet; where that cannot be done, the reason is recorded and printed.

    Args:
        args: see `add_arguments`.
        peers: the rows of other libraries.

    Returns:
        1 if a row that was asked for could not be measured: one of ``--only``, one whose measurement failed, or
        one whose library ``--install`` could not install; otherwise 0.
    """
    entries = _find_entries(args.only, (*QUARRY, *peers))
    has_failed = args.install and not _install(entries)
    collection = load_collection(args)
    prepared = prepare(collection, open_encoder(), _REPRESENTATIONS, cache_folder())
    results = args.out / _RESULTS
    before = [record for record in read_records(results) if record["prepared"] == prepared.folder.name]
    done = {record["name"] for record in before if "skipped" not in record}
    remaining = [entry for entry in entries if entry.name not in done]
    measured_s = [cast(float, record["encoding_s"]) for record in before]
    encoding_s = measured_s[0] if measured_s else _time_encoding(collection)
    about = {
        "prepared": prepared.folder.name,
        **prepared.about(),
        **describe_environment(),
        "encoding_s": encoding_s,
    }
    for entry in tqdm(remaining, "rows"):
        runs = args.out / "runs" / prepared.folder.name
        obstacle = _obstacle(entry)
        measured = _measure(entry, prepared, collection, runs) if obstacle is None else {"skipped": obstacle}
        append_record(results, {**asdict(entry), **about, **measured})
        if "skipped" in measured:
            print(f"{entry.name} is not measured: {measured['skipped']}", file=sys.stderr, flush=True)
            has_failed |= args.only is not None or obstacle is None
    return int(has_failed)


def _find_entries(words: list[str] | None, rows: tuple[Entry, ...]) -> list[Entry]:
    """Return the rows whose names contain one of some words; None: all rows.

    Raises:
        InvalidSetting: no row's name contains one of them.
    """
    for word in words or ():
        if not any(word in entry.name for entry in rows):
            names = ", ".join(entry.name for entry in rows)
            raise InvalidSetting("--only names no row", expected=f"words of {names}", actual=word)
    return [entry for entry in rows if words is None or any(word in entry.name for word in words)]


def _obstacle(entry: Entry) -> str | None:
    """Return why a row cannot be measured here; None: nothing is known."""
    python = environment_python(entry)
    if python is not None and not python.exists():
        return f"no environment at {python}; --install creates it"
    return None


def _measure(entry: Entry, prepared: Prepared, collection: Collection, runs: Path) -> Record:
    """Measure one row, or return the reason why that failed."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return dict(_measure_parts(entry, prepared, collection, runs, Path(folder)))
    except ProcessFailed as error:
        return {"skipped": str(error).splitlines()[-1]}


def _measure_parts(
    entry: Entry, prepared: Prepared, collection: Collection, runs: Path, work: Path
) -> Iterator[tuple[str, object]]:
    python = environment_python(entry) or Path(sys.executable)
    run_file = runs.resolve() / (entry.name.replace(" ", "_") + ".run")
    common = {
        **asdict(entry),
        "requirements": entry.requirements,
        "prepared": str(prepared.folder.resolve()),
        "folder": str(work / "with_texts"),
        "n_timed": _N_TIMED,
        "run": str(run_file),
    }
    is_quarry = entry.module == "quarry_index"
    if entry.encodes or not is_quarry:
        built = in_fresh_process("bench.peers.probe:build", {**common, "with_texts": True}, python)
        yield from ((f"text_{name}" if name != "peer_versions" else name, value) for name, value in built.items())
    if is_quarry:
        yield from _build_quarry(entry, common, work)
    elif not entry.text_only:
        yield from _build_peer(common, work / "vectors", python) if entry.stores_text else _rename_build(built)
    yield from in_fresh_process("bench.peers.probe:search", common, python).items()
    yield from asdict(measure_quality(collection.qrels, read_run(run_file))).items()


def _build_peer(common: Record, out: Path, python: Path) -> Iterator[tuple[str, object]]:
    """Build a library's index from vectors without texts."""
    parameters = {**common, "folder": str(out), "with_texts": False}
    yield from _rename_build(in_fresh_process("bench.peers.probe:build", parameters, python))


def _rename_build(built: Record) -> Iterator[tuple[str, object]]:
    """Return the numbers of a build without texts under their names in a record."""
    yield "vectors_build_s", built["build_s"]
    yield "vectors_disk_bytes", built["disk_bytes"]


def _build_quarry(entry: Entry, common: Record, work: Path) -> Iterator[tuple[str, object]]:
    """Build Quarry's index from vectors; it stores texts too, so bytes are reported by part."""
    out = work / "vectors" if entry.encodes else Path(str(common["folder"]))
    setting = {"representation": entry.settings["key"], "build": entry.settings["build"]}
    fixed = {"prepared": common["prepared"], "out": str(out), "nlist": None, "lists": False}
    built = in_fresh_process("bench.sweep.probe:build_index", {**setting, **fixed})
    yield "vectors_build_s", built["build_s"]
    parts = built["bytes"]
    assert isinstance(parts, dict)
    yield "vectors_disk_bytes", sum(parts[name] for name in ("centroids", "codes", "quantizers", "ids"))
    yield "bytes", parts
    if not entry.encodes:
        yield "text_disk_bytes", built["size_bytes"]


def _time_encoding(collection: Collection) -> float:
    """Return the seconds to encode every document to its mean vector, on all cores."""
    encoder, mean = open_encoder(), Mean()
    texts = list(collection.documents.values())
    encoder.encode_query(texts[0])
    started = time.perf_counter()
    with ThreadPoolExecutor(n_cpus()) as pool:
        for _ in pool.map(lambda text: mean.represent(text, encoder.windows(text), encoder.normalize), texts):
            pass
    return time.perf_counter() - started


def _install(entries: list[Entry]) -> bool:
    """Create missing environments with pip, and return whether all are there; what is incomplete is deleted."""
    missing = {python: entry for entry in entries if (python := environment_python(entry)) and not python.exists()}
    for python, entry in missing.items():
        folder = python.parent.parent
        print(f"{folder}: {' '.join(entry.requirements)}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        commands = [[*pip, *entry.requirements, *CORE_REQUIREMENTS], [*pip, "--no-deps", "--editable", str(ROOT)]]
        if any(subprocess.run(command, check=False).returncode for command in commands):
            print(f"{entry.name} cannot be installed here", file=sys.stderr)
            shutil.rmtree(folder)
    return all(python.exists() for python in missing)
