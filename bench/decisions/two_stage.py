"""Two-stage search against bare libraries on the same vectors: the recall of the top 10, its time, memory.

``python -m bench two_stage INDEX COLLECTION [--out FILE] [--peers NAMES] [--code-bytes N ...]`` takes the first
segment of an index with int8 centroids and the questions of a collection. Ours goes from a query vector to ranked
documents; with other sizes of codes the vectors are coded anew, in an index for the time being. FAISS
(IVF of the same lists and codes, the nearest rescored in 8 bits), hnswlib and USearch are called bare, from a
query vector to the nearest rows. Recall is of the ten documents with the best maxima, computed in full.
One thread; all settings take turns at each query, in random order.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.data.collections import add_collection, load_collection
from bench.data.recoded import recoded
from bench.harness.environment import circumstances
from bench.harness.progress import Clock
from bench.harness.records import add_out, append_record
from quarry.engine.backends.cpu_faiss import FaissBackend
from quarry.engine.backends.faiss_lists import build_faiss_lists
from quarry.engine.encoding.encoder import open_encoder
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

K = 10
_N_NEAREST = 100  # rows asked of a library, so that ten documents own them
_BATCH_ROWS = 1 << 15
_BREADTHS = (100, 128, 192, 256, 384, 512, 768)  # of searches in graphs
Floats = npt.NDArray[np.float32]
Found = Callable[[Floats], npt.NDArray[np.int64]]


@dataclass
class Setting:
    """One way to answer, and what was measured of it.

    Attributes:
        method: a library.
        label: its setting.
        bytes_per_row: main memory it needs for a centroid, files that are mapped left out.
        find: (dim,) float32 query to documents or rows, best first.
        rows: whether `find` gives rows.
        times_ms: of each query.
        n_found: documents found of the ten best, over all queries.
    """

    method: str
    label: str
    bytes_per_row: float
    find: Found
    rows: bool
    times_ms: list[float] = field(default_factory=list)
    n_found: int = 0

    def measure(self, query: Floats, truth: set[int], owners: npt.NDArray[np.int64]) -> None:
        """Answer one query."""
        started = time.perf_counter()
        found = self.find(query)
        self.times_ms.append((time.perf_counter() - started) * 1e3)
        docs = dict.fromkeys(owners[found[found >= 0]].tolist()) if self.rows else found.tolist()
        self.n_found += len(truth & set(list(docs)[:K]))

    def record(self) -> dict[str, object]:
        """What was measured."""
        return {
            "method": self.method,
            "setting": self.label,
            "recall_10": self.n_found / (K * len(self.times_ms)),
            "p50_ms": statistics.median(self.times_ms),
            "bytes_per_centroid": self.bytes_per_row,
        }


def ours(snapshot: Snapshot) -> Iterator[Setting]:
    """Settings of this engine, by lists and by candidates."""
    segment = snapshot.segments[0]
    assert segment.quantizer is not None
    bytes_per_row = FaissBackend.needed_bytes(segment) / segment.reader.n_rows
    searcher = Searcher(snapshot, OpenOptions(backend="cpu_faiss", threads=1))
    nlist, default = segment.quantizer.nlist, default_nprobe(segment.quantizer)
    usual = default_candidates(segment, K)
    label = f"PQ {segment.quantizer.code_bytes} bytes"
    for nprobe in sorted({default, *_probes(nlist)}):
        for candidates in sorted({100, 150, usual}):
            options = SearchOptions(k=K, mode="dense", nprobe=nprobe, candidates=candidates)
            is_default = ", default" if (nprobe, candidates) == (default, usual) else ""
            named = f"{label}, nprobe {nprobe}, {candidates} documents{is_default}"

            def find(query: Floats, options: SearchOptions = options) -> npt.NDArray[np.int64]:
                return searcher.search(query[None], options)[0].docs

            yield Setting("quarry", named, bytes_per_row, find, rows=False)


def faiss_refined(segment: OpenSegment) -> Iterator[Setting]:
    """FAISS: the same lists and codes, the best rescored in 8 bits per dimension."""
    import faiss

    quantizer, lists, table = segment.quantizer, segment.reader.lists, segment.reader.centroids
    assert quantizer is not None
    assert lists is not None
    base = build_faiss_lists(quantizer, lists, np.arange(table.n_rows))
    refine = faiss.IndexScalarQuantizer(table.dim, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    for rows in _batches(segment):
        if not refine.is_trained:
            refine.train(rows)
        refine.add(rows)
    index = faiss.IndexRefine(base, refine)
    index.own_fields = False
    index.referenced_objects = [base, refine]
    bytes_per_row = FaissBackend.needed_bytes(segment) / table.n_rows + table.dim
    for nprobe in sorted({default_nprobe(quantizer), *_probes(quantizer.nlist)}):
        for factor in (2, 4):
            parameters = faiss.IndexRefineSearchParameters(
                k_factor=factor, base_index_params=faiss.SearchParametersIVF(nprobe=nprobe)
            )

            def find(query: Floats, parameters: Any = parameters) -> npt.NDArray[np.int64]:  # noqa: ANN401
                found: npt.NDArray[np.int64] = index.search(query[None], _N_NEAREST, params=parameters)[1][0]
                return found

            label = f"nprobe {nprobe}, {factor * _N_NEAREST} rows"
            yield Setting("faiss IVF + refine", label, bytes_per_row, find, rows=True)


def hnswlib_graph(segment: OpenSegment) -> Iterator[Setting]:
    """hnswlib: M 16, 100 neighbors looked at when built, float32."""
    import hnswlib

    table = segment.reader.centroids
    index: Any = hnswlib.Index(space="ip", dim=table.dim)
    index.init_index(max_elements=table.n_rows, ef_construction=100, M=16)
    for rows in _with_progress(segment, "hnswlib"):
        index.add_items(rows)
    index.set_num_threads(1)
    for ef in _BREADTHS:

        def find(query: Floats, ef: int = ef) -> npt.NDArray[np.int64]:
            index.set_ef(ef)
            found: npt.NDArray[np.int64] = index.knn_query(query, _N_NEAREST)[0][0].astype(np.int64)
            return found

        yield Setting("hnswlib", f"ef {ef}", index.index_file_size() / table.n_rows, find, rows=True)


def usearch_graph(segment: OpenSegment) -> Iterator[Setting]:
    """USearch: 16 edges, 100 neighbors looked at when built, float16."""
    from usearch.index import Index

    table = segment.reader.centroids
    index: Any = Index(ndim=table.dim, metric="ip", dtype="f16", connectivity=16, expansion_add=100)
    for number, rows in enumerate(_with_progress(segment, "USearch")):
        index.add(np.arange(number * _BATCH_ROWS, number * _BATCH_ROWS + len(rows)), rows)
    for expansion in _BREADTHS:

        def find(query: Floats, expansion: int = expansion) -> npt.NDArray[np.int64]:
            index.expansion_search = expansion
            found: npt.NDArray[np.int64] = index.search(query, _N_NEAREST, threads=1).keys.astype(np.int64)
            return found

        yield Setting("usearch", f"expansion {expansion}", index.memory_usage / table.n_rows, find, rows=True)


PEERS: dict[str, Callable[[OpenSegment], Iterator[Setting]]] = {
    "faiss": faiss_refined,
    "hnswlib": hnswlib_graph,
    "usearch": usearch_graph,
}


def exact_best(segment: OpenSegment, queries: Floats) -> npt.NDArray[np.int64]:
    """(n_queries, K) int64: the documents with the best maxima, by plain float32 products."""
    table = segment.reader.centroids
    scores = np.empty((table.n_rows, len(queries)), np.float32)
    low = 0
    for rows in _batches(segment):
        np.matmul(rows, queries.T, out=scores[low : low + len(rows)])
        low += len(rows)
    best = np.maximum.reduceat(scores, table.offsets[:-1], axis=0)
    order: npt.NDArray[np.int64] = np.argpartition(-best, K, axis=0)[:K].T
    return order


def _batches(segment: OpenSegment) -> Iterator[Floats]:
    """All stored centroids, dequantized."""
    vectors, n_rows = StoredVectors(segment), segment.reader.n_rows
    for low in range(0, n_rows, _BATCH_ROWS):
        yield vectors.vectors(np.arange(low, min(low + _BATCH_ROWS, n_rows)))


def _with_progress(segment: OpenSegment, library: str) -> Iterator[Floats]:
    """The same; each is counted when the library has taken it."""
    clock = Clock(-(-segment.reader.n_rows // _BATCH_ROWS), f"batches of rows taken by {library}")
    for rows in _batches(segment):
        yield rows
        clock.tick()


def _probes(nlist: int) -> list[int]:
    return [max(1, round(nlist * share)) for share in (0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.25)]


def measure(settings: Sequence[Setting], segment: OpenSegment, queries: Floats) -> None:
    """Let all settings answer all queries, by turns."""
    table = segment.reader.centroids
    owners = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
    set_faiss_threads(1)
    generator = np.random.default_rng(0)
    for setting in settings:
        setting.find(queries[0])
    for query, truth in zip(queries, exact_best(segment, queries), strict=True):
        order = generator.permutation(len(settings)).tolist()  # what one has read is in the caches of the next
        for number in order:
            settings[number].measure(query, set(truth.tolist()), owners)


def _row(record: dict[str, object]) -> str:
    method, setting = record["method"], record["setting"]
    numbers = f"{record['recall_10']:>7.4f} {record['p50_ms']:>8.3f} {record['bytes_per_centroid']:>8.1f}"
    return f"{method:<18} {setting:<52} {numbers}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench two_stage``."""
    parser.add_argument("index", type=Path, help="its first segment has int8 centroids and inverted lists")
    add_collection(parser, queries=200)
    parser.add_argument("--peers", default="faiss,hnswlib,usearch", help="separated by commas")
    parser.add_argument("--code-bytes", type=int, nargs="*", default=[], help="sizes of codes besides the index's")
    add_out(parser, "two_stage")


def run(options: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    encoder, questions = open_encoder(), load_collection(options).queries.values()
    queries = np.stack([encoder.encode_query(question) for question in questions])
    snapshot = Snapshot(Directory(options.index))
    segment = snapshot.segments[0]
    if segment.quantizer is None or segment.reader.lists is None:
        raise InvalidSetting("the first segment is too small for inverted lists", path=options.index)
    settings = list(ours(snapshot))
    with ExitStack() as stack:
        for code_bytes in options.code_bytes:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings += ours(recoded(snapshot, folder, replace(snapshot.manifest.settings, code_bytes=code_bytes)))
        for peer in filter(None, options.peers.split(",")):
            try:
                settings += PEERS[peer](segment)
            except ImportError as error:
                print(f"{peer} is left out: {error}", file=sys.stderr)
        measure(settings, segment, queries)
    about = {"n_documents": segment.record.n_docs, "n_centroids": segment.reader.n_rows, **circumstances()}
    for record in sorted(
        (setting.record() for setting in settings), key=lambda each: float(str(each["recall_10"]))
    ):
        print(_row(record), flush=True)
        append_record(options.out, {**record, **about})
    return 0
