"""Measures quality on this machine, an emulated one too: ``python -m bench machine [COLLECTION]``.

The documents are encoded, indexed and searched here, and nDCG@10 of each mode is recorded with the processor and
the versions, to be compared with that of another machine. Encoding takes an emulator long: documents are committed
a few at a time, and a run that was ended is continued with the index that it left.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.data.collections import add_collection, load_collection
from bench.harness.records import add_out, append_result
from quarry.engine import Engine
from quarry.engine.choices import MODES
from quarry.engine.evaluation.evaluation import evaluate
from quarry.engine.evaluation.judgments import JudgedQueries

__all__ = ["add_arguments", "run"]

_DOCUMENTS_AT_ONCE = 50  # one to five minutes of an emulated processor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench machine``."""
    add_collection(parser)
    parser.add_argument(
        "--index", type=Path, required=True, help="folder of the index, which a later run goes on with"
    )
    parser.add_argument("--threads", type=int, help="number of threads (default: all processors)")
    add_out(parser, "machine")


def run(args: argparse.Namespace) -> int:
    """Index the documents that the index lacks, measure all modes, and append the raw result."""
    collection = load_collection(args)
    with Engine.open(args.index, writable=True, create=True, threads=args.threads) as index:
        rest = [each for each in collection.documents.items() if each[0] not in index]
        for first in range(0, len(rest), _DOCUMENTS_AT_ONCE):
            start = time.process_time()
            index.add({"id": name, "text": text} for name, text in rest[first : first + _DOCUMENTS_AT_ONCE])
            index.commit()
            print(f"{len(index)} documents, {time.process_time() - start:.0f} s of CPU for the last", flush=True)
        judged = JudgedQueries(tuple(collection.queries.values()), tuple(collection.qrels.values()), 0)
        qualities = evaluate(index, judged, MODES)
        n_documents = len(index)
    ndcg = {mode: round(each.ndcg_10.mean, 5) for mode, each in qualities.items()}
    print(ndcg)
    append_result(
        args.out,
        {"collection": collection.name, "documents": n_documents, "queries": len(judged.texts), "ndcg_10": ndcg},
    )
    return 0
