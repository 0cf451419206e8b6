"""Quarry beside other libraries: the same collection, encoder, vectors and queries in one run.

Peers get one mean vector per document, those of late interaction all token vectors. A build from text is, for a
peer, the time to encode all documents on all cores with Quarry's encoder (measured once in this run) and then to
build from the vectors; for Quarry it is one `engine.build`, measured of two of its settings. The others are built
from vectors, without the spans of text behind them (some 30 bytes per document).
"""

from __future__ import annotations

import argparse
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

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.prepare import prepare
from bench.data.prepared import Prepared, cache_folder
from bench.data.quality import measure_quality
from bench.data.token_vectors import TokenRepresentation
from bench.data.trec_run import read_run
from bench.harness.environment import circumstances
from bench.harness.fresh_process import ProcessFailed, in_fresh_process
from bench.harness.progress import Clock
from bench.harness.records import Record, add_out, append_record, read_records
from bench.peers.registry import CORE_REQUIREMENTS, PEERS, QUARRY, UNMEASURED, Entry, environment_python
from quarry.engine.encoding.encoder import open_encoder
from quarry.engine.options import OpenOptions
from quarry.engine.representation.base import Representation
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean

__all__ = ["add_arguments", "run"]

_RESULTS = "peers.jsonl"
_N_TIMED = 300
_N_TIMED_LATE = 100  # they take a hundred times as long


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench peers``."""
    add_collection(parser, queries=1000)
    add_out(parser, "peers", is_folder=True)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose names contain one of these")
    parser.add_argument("--install", action="store_true", help="make the environments that are missing first")


def run(args: argparse.Namespace) -> int:
    """Measure every row that is not in the results yet; a peer that is missing is recorded with the reason."""
    wanted = [
        entry for entry in (*QUARRY, *PEERS) if not args.only or any(word in entry.name for word in args.only)
    ]
    if args.install:
        _install(wanted)
    collection = load_collection(args)
    prepared = prepare(collection, open_encoder(), _representations(wanted, collection), cache_folder())
    results = args.out / _RESULTS
    before = [record for record in read_records(results) if record["prepared"] == prepared.folder.name]
    done = {record["name"] for record in before if "skipped" not in record}
    left = [entry for entry in wanted if entry.name not in done]
    known = [cast(float, record["encoding_s"]) for record in before]
    encoding_s = known[0] if known else _encoding_s(collection)
    about = {"prepared": prepared.folder.name, **prepared.about(), **circumstances(), "encoding_s": encoding_s}
    clock = Clock(len(left), "rows")
    for entry in left:
        runs = args.out / "runs" / prepared.folder.name
        append_record(results, {**asdict(entry), **about, **_measured(entry, prepared, collection, runs)})
        clock.tick()
    for name, reason in UNMEASURED.items() if left else ():
        append_record(results, {"name": name, "skipped": reason, **about})
    return 0


def _representations(wanted: list[Entry], collection: Collection) -> list[Representation]:
    """Whose vectors the rows need."""
    found: list[Representation] = [Mean(), Pieces(24), Pieces(64)]
    if any(entry.vectors == "tokens" and not _too_many(entry, collection) for entry in wanted):
        found.append(TokenRepresentation())
    return found


def _too_many(entry: Entry, collection: Collection) -> bool:
    return entry.n_documents_at_most is not None and len(collection.documents) > entry.n_documents_at_most


def _measured(entry: Entry, prepared: Prepared, collection: Collection, runs: Path) -> Record:
    """The numbers of one row, or why there are none."""
    python = environment_python(entry)
    if _too_many(entry, collection):
        n_most = entry.n_documents_at_most
        return {"skipped": f"a build of more than {n_most} documents takes too long on a CPU (see --documents)"}
    if python is not None and not python.exists():
        return {"skipped": f"no environment at {python}; --install makes it"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            return dict(_numbers(entry, prepared, collection, runs, Path(folder)))
    except ProcessFailed as error:
        return {"skipped": str(error).splitlines()[-1]}


def _numbers(
    entry: Entry, prepared: Prepared, collection: Collection, runs: Path, work: Path
) -> Iterator[tuple[str, object]]:
    python = environment_python(entry) or Path(sys.executable)
    answers = runs.resolve() / (entry.name.replace(" ", "_") + ".run")
    common = {
        **asdict(entry),
        "requirements": entry.requirements,
        "prepared": str(prepared.folder.resolve()),
        "folder": str(work / "with_texts"),
        "n_timed": _N_TIMED_LATE if entry.vectors == "tokens" else _N_TIMED,
        "run": str(answers),
    }
    ours = entry.module == "quarry_index"
    if entry.encodes or not ours:
        built = in_fresh_process("bench.peers.probe:build", {**common, "with_texts": True}, python)
        yield from ((f"text_{name}" if name != "peer_versions" else name, value) for name, value in built.items())
    if ours:
        yield from _ours_from_vectors(entry, common, work)
    elif not entry.text_only:
        yield from _from_vectors(common, work / "vectors", python) if entry.stores_text else _renamed(built)
    yield from in_fresh_process("bench.peers.probe:search", common, python).items()
    yield from asdict(measure_quality(collection.qrels, read_run(answers))).items()


def _from_vectors(common: Record, out: Path, python: Path) -> Iterator[tuple[str, object]]:
    """A build from vectors without texts."""
    parameters = {**common, "folder": str(out), "with_texts": False}
    yield from _renamed(in_fresh_process("bench.peers.probe:build", parameters, python))


def _renamed(built: Record) -> Iterator[tuple[str, object]]:
    """What a build without texts measured: of a peer that stores none, the one build there is."""
    yield "vectors_build_s", built["build_s"]
    yield "vectors_disk_bytes", built["disk_bytes"]


def _ours_from_vectors(entry: Entry, common: Record, work: Path) -> Iterator[tuple[str, object]]:
    """A build from vectors; texts are always kept, so the bytes of vectors and ids are reported by part."""
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


def _encoding_s(collection: Collection) -> float:
    """Seconds to make one mean vector of every document, on all cores."""
    encoder, mean = open_encoder(), Mean()
    texts = list(collection.documents.values())
    encoder.encode_query(texts[0])
    started = time.perf_counter()
    with ThreadPoolExecutor(OpenOptions().n_threads) as pool:
        for _ in pool.map(lambda text: mean.represent(text, encoder.windows(text), encoder.normalize), texts):
            pass
    return time.perf_counter() - started


def _install(wanted: list[Entry]) -> None:
    """Make the environments that are not there, with pip from the package index."""
    for entry in wanted:
        python = environment_python(entry)
        if python is None or python.exists():
            continue
        folder = python.parent.parent
        print(f"{folder}: {' '.join(entry.requirements)}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *entry.requirements, *CORE_REQUIREMENTS]
        if subprocess.run(command, check=False).returncode:
            print(f"{entry.name} cannot be installed here", file=sys.stderr)
