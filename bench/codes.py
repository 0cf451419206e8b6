"""What an index of codes alone finds: the quality of dense search by the size of a code.

``python -m bench codes INDEX COLLECTION [--out FILE]`` takes the vectors of an index with int8 centroids, stores
them as codes of several sizes and nothing else, and asks the judged questions of the collection.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.circumstances import circumstances
from bench.collections import data_folder, read_collection
from bench.quality import measure_quality
from bench.recoded import recoded
from bench.records import append_record
from engine import Engine
from formats.directory import Directory
from formats.manifest import IndexSettings
from formats.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

_CODE_BYTES = (8, 12, 16, 24, 32, 48, 96)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench codes``."""
    parser.add_argument("index", type=Path, help="of the whole collection, with int8 centroids in one segment")
    parser.add_argument("collection")
    parser.add_argument("--out", type=Path, help="JSON lines are appended to this file")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    source = Snapshot(Directory(options.index))
    settings = source.manifest.settings
    choices = [settings] + [replace(settings, centroids="none", code_bytes=size) for size in _CODE_BYTES]
    for chosen in choices:
        with tempfile.TemporaryDirectory() as folder:
            recoded(source, Path(folder), chosen)
            numbers = _quality(Path(folder), options.collection)
        print(chosen.centroids, _vector_bytes(chosen), "bytes a vector", numbers, flush=True)
        if options.out:
            about = {"collection": options.collection, "centroids": chosen.centroids}
            size = {"code_bytes": chosen.code_bytes, "vector_bytes": _vector_bytes(chosen)}
            append_record(options.out, {**about, **size, **numbers, **circumstances()})
    return 0


def _quality(index: Path, collection: str) -> dict[str, float]:
    folder = data_folder(collection)
    judged = read_collection(folder, "dev" if (folder / "qrels" / "dev.tsv").exists() else "test")
    with Engine.open(index) as opened:
        answers = opened.search(list(judged.queries.values()), k=100, mode="dense")
    run = {query: {hit.id: hit.score for hit in hits} for query, hits in zip(judged.queries, answers, strict=True)}
    found = measure_quality(judged.qrels, run)
    return {"ndcg_10": found.ndcg_10, "ndcg_exp_10": found.ndcg_exp_10, "recall_100": found.recall_100}


def _vector_bytes(settings: IndexSettings) -> int:
    """On disk, without the codes that find what int8 centroids rescore."""
    return settings.code_bytes if settings.centroids == "none" else settings.dim + 4
