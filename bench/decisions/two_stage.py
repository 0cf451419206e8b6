"""Compares two-stage search with FAISS, hnswlib and USearch on the same vectors: recall, latency, memory.

``python -m bench two_stage INDEX COLLECTION`` takes the first segment of an index with int8 centroids and the
questions of a collection. Quarry goes from a query vector to ranked documents; with ``--code-bytes`` also with
codes of other sizes. FAISS (IVF with the same lists and codes, the nearest rows rescored in 8 bits), hnswlib and
USearch are called directly and go from a query vector to the nearest rows. Recall is that of the ten documents
with the best maxima, computed exhaustively. One thread; all settings run each query in turn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bench.data.collections import add_collection, load_collection
from bench.data.recode import recode_index
from bench.harness.latency import time_in_turn
from bench.harness.records import Record, add_out, append_result
from quarry.engine.backends.cpu_faiss import FaissBackend
from quarry.engine.backends.faiss_lists import build_faiss_lists
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.quantization.candidates import default_candidates
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.quantization.nprobe import default_nprobe
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["add_arguments", "run"]

_K = 10
_N_ROWS = 100  # rows requested from a library, so that they belong to ten documents
_BATCH_ROWS = 1 << 15
_GRAPH_BREADTHS = (100, 128, 192, 256, 384, 512, 768)
_PROBED_SHARES = (0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.25)
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Setting(NamedTuple):
    """A library with its parameters.

    Attributes:
        method: the library.
        label: its parameters.
        bytes_per_row: main memory per centroid, memory-mapped files excluded.
        find: from a (dim,) float32 query to ordinals of documents, or numbers of rows, best first.
        has_rows: whether `find` returns rows.
    """

    method: str
    label: str
    bytes_per_row: float
    find: Callable[[Floats], Ints]
    has_rows: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench two_stage``."""
    parser.add_argument(
        "index", type=Path, help="an index whose first segment has int8 centroids and inverted lists"
    )
    add_collection(parser, queries=200)
    parser.add_argument("--peers", default=",".join(_PEERS), help="separated by commas (default: %(default)s)")
    parser.add_argument("--code-bytes", type=int, nargs="*", default=[], help="more sizes of Quarry's codes")
    add_out(parser, "two_stage")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    encoder, questions = open_encoder(), load_collection(args).queries.values()
    queries = np.stack([encoder.encode_query(question) for question in questions])
    snapshot = Snapshot(Directory(args.index))
    segment = snapshot.segments[0]
    if segment.quantizer is None or segment.reader.lists is None:
        raise InvalidSetting("the first segment is too small for inverted lists", path=args.index)
    settings = list(_quarry_settings(snapshot))
    with ExitStack() as stack:
        for code_bytes in args.code_bytes:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            recoded = recode_index(snapshot, folder, replace(snapshot.manifest.settings, code_bytes=code_bytes))
            settings += _quarry_settings(recoded)
        for peer in filter(None, args.peers.split(",")):
            try:
                settings += _PEERS[peer](segment)
            except ImportError as error:
                print(f"{peer} is skipped: {error}", file=sys.stderr)
        records = _measure(settings, segment, queries)
    for record in sorted(records, key=lambda each: float(str(each["recall_10"]))):
        numbers = f"{record['recall_10']:>7.4f} {record['p50_ms']:>8.3f} {record['bytes_per_centroid']:>8.1f}"
        print(f"{record['method']:<18} {record['setting']:<52} {numbers}", flush=True)
        append_result(
            args.out, {**record, "n_documents": segment.record.n_docs, "n_centroids": segment.reader.n_rows}
        )
    return 0


def _measure(settings: Sequence[Setting], segment: OpenSegment, queries: Floats) -> list[Record]:
    """Run all queries with all settings and return a record for each setting."""
    table = segment.reader.centroids
    owners = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
    exact = _find_exact(segment, queries)
    set_faiss_threads(1)
    for setting in settings:
        setting.find(queries[0])
    timings = time_in_turn({str(number): each.find for number, each in enumerate(settings)}, queries)
    records: list[Record] = []
    for setting, timing in zip(settings, timings.values(), strict=True):
        n_found = 0
        for found, best in zip(timing.results, exact, strict=True):
            docs = dict.fromkeys(owners[found[found >= 0]].tolist()) if setting.has_rows else found.tolist()
            n_found += len(set(best.tolist()) & set(list(docs)[:_K]))
        records.append(
            {
                "method": setting.method,
                "setting": setting.label,
                "recall_10": n_found / (_K * len(queries)),
                "p50_ms": float(np.median(timing.wall_ms)),
                "bytes_per_centroid": setting.bytes_per_row,
            }
        )
    return records


def _find_exact(segment: OpenSegment, queries: Floats) -> Ints:
    """Return the ten documents with the best maxima, by exhaustive search in float32: (n_queries, 10) int64."""
    table = segment.reader.centroids
    scores = np.empty((table.n_rows, len(queries)), np.float32)
    for low, rows in _row_batches(segment, "exhaustive search"):
        np.matmul(rows, queries.T, out=scores[low : low + len(rows)])
    best = np.maximum.reduceat(scores, table.offsets[:-1], axis=0)
    order: Ints = np.argpartition(-best, _K, axis=0)[:_K].T
    return order


def _row_batches(segment: OpenSegment, purpose: str) -> Iterator[tuple[int, Floats]]:
    """Yield all stored centroids, dequantized, in batches with the number of their first row."""
    vectors, n_rows = StoredVectors(segment), segment.reader.n_rows
    for low in tqdm(range(0, n_rows, _BATCH_ROWS), purpose, unit=" batches"):
        yield low, vectors.vectors(np.arange(low, min(low + _BATCH_ROWS, n_rows)))


def _probe_counts(nlist: int, default: int) -> list[int]:
    return sorted({default, *(max(1, round(nlist * share)) for share in _PROBED_SHARES)})


def _quarry_settings(snapshot: Snapshot) -> Iterator[Setting]:
    """Yield settings of Quarry by number of lists and of candidates."""
    segment = snapshot.segments[0]
    assert segment.quantizer is not None
    bytes_per_row = FaissBackend.needed_bytes(segment) / segment.reader.n_rows
    searcher = Searcher(snapshot, OpenOptions(backend="cpu_faiss", threads=1))
    default = default_nprobe(segment.quantizer, _K), default_candidates(segment, _K)
    for nprobe in _probe_counts(segment.quantizer.nlist, default[0]):
        for candidates in sorted({100, 150, default[1]}):
            options = SearchOptions(k=_K, mode="dense", nprobe=nprobe, candidates=candidates)
            suffix = ", default" if (nprobe, candidates) == default else ""
            label = f"PQ {segment.quantizer.code_bytes} bytes, nprobe {nprobe}, {candidates} documents{suffix}"

            def find(query: Floats, options: SearchOptions = options) -> Ints:
                return searcher.search(query[None], options)[0].docs

            yield Setting("quarry", label, bytes_per_row, find, has_rows=False)


def _faiss_settings(segment: OpenSegment) -> Iterator[Setting]:
    """Yield settings of FAISS: the same lists and codes, the best rows rescored in 8 bits per dimension."""
    import faiss

    quantizer, lists, table = segment.quantizer, segment.reader.lists, segment.reader.centroids
    assert quantizer is not None
    assert lists is not None
    base = build_faiss_lists(quantizer, lists, np.arange(table.n_rows))
    refine = faiss.IndexScalarQuantizer(table.dim, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    for _, rows in _row_batches(segment, "FAISS"):
        if not refine.is_trained:
            refine.train(rows)
        refine.add(rows)
    index = faiss.IndexRefine(base, refine)
    index.own_fields = False
    index.referenced_objects = [base, refine]
    bytes_per_row = FaissBackend.needed_bytes(segment) / table.n_rows + table.dim
    for nprobe in _probe_counts(quantizer.nlist, default_nprobe(quantizer, _K)):
        for factor in (2, 4):
            parameters = faiss.IndexRefineSearchParameters(
                k_factor=factor, base_index_params=faiss.SearchParametersIVF(nprobe=nprobe)
            )

            def find(query: Floats, parameters: Any = parameters) -> Ints:  # noqa: ANN401
                found: Ints = index.search(query[None], _N_ROWS, params=parameters)[1][0]
                return found

            yield Setting("faiss IVF + refine", f"nprobe {nprobe}, {factor * _N_ROWS} rows", bytes_per_row, find)


def _hnswlib_settings(segment: OpenSegment) -> Iterator[Setting]:
    """Yield settings of hnswlib: M 16, ef_construction 100, float32."""
    import hnswlib

    table = segment.reader.centroids
    index: Any = hnswlib.Index(space="ip", dim=table.dim)
    index.init_index(max_elements=table.n_rows, ef_construction=100, M=16)
    for _, rows in _row_batches(segment, "hnswlib"):
        index.add_items(rows)
    index.set_num_threads(1)
    for ef in _GRAPH_BREADTHS:

        def find(query: Floats, ef: int = ef) -> Ints:
            index.set_ef(ef)
            found: Ints = index.knn_query(query, _N_ROWS)[0][0].astype(np.int64)
            return found

        yield Setting("hnswlib", f"ef {ef}", index.index_file_size() / table.n_rows, find)


def _usearch_settings(segment: OpenSegment) -> Iterator[Setting]:
    """Yield settings of USearch: connectivity 16, expansion_add 100, float16."""
    from usearch.index import Index

    table = segment.reader.centroids
    index: Any = Index(ndim=table.dim, metric="ip", dtype="f16", connectivity=16, expansion_add=100)
    for low, rows in _row_batches(segment, "USearch"):
        index.add(np.arange(low, low + len(rows)), rows)
    for expansion in _GRAPH_BREADTHS:

        def find(query: Floats, expansion: int = expansion) -> Ints:
            index.expansion_search = expansion
            found: Ints = index.search(query, _N_ROWS, threads=1).keys.astype(np.int64)
            return found

        yield Setting("usearch", f"expansion {expansion}", index.memory_usage / table.n_rows, find)


_PEERS: dict[str, Callable[[OpenSegment], Iterator[Setting]]] = {
    "faiss": _faiss_settings,
    "hnswlib": _hnswlib_settings,
    "usearch": _usearch_settings,
}
