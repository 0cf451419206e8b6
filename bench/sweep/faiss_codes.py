"""Kinds of codes that FAISS has and the engine does not: what they hold, alone, in lists like the engine's.

8-bit product quantization, and RaBitQ (Gao and Long 2024), which needs no training. Called by
`bench.harness.fresh_process`, beside the settings of `bench.sweep.probe` and with the names of their numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bench.data.prepared import Prepared
from bench.harness.latency import latency_ms
from bench.harness.process_memory import peak_rss_bytes
from bench.sweep.probe import N_TIMED, Found, Numbers, Parameters, judged
from quarry.engine.options import OpenOptions
from quarry.engine.quantization.faiss_threads import set_faiss_threads
from quarry.engine.quantization.training import nlist_for

__all__ = ["measure"]

_ROWS_FOR_10 = 100  # so that ten documents own them
_ROWS_FOR_100 = 1000
_LISTS_READ, _LISTS_AT_LEAST = 1 / 8, 8
_ROW_BYTES = 4  # its number, as the engine's lists keep it

Floats = npt.NDArray[np.float32]


def measure(parameters: Parameters) -> Numbers:
    """Build lists of codes in memory and search them.

    Args:
        parameters: ``prepared`` (a folder), ``representation``, ``factory``: FAISS's name of the codes.

    Returns:
        What `bench.sweep.probe.build_index` and `search_index` return, without times to open, and without
        size_bytes: nothing is written.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    values, offsets = prepared.vectors(str(parameters["representation"]))
    started = time.perf_counter()
    index = _built(np.array(values), str(parameters["factory"]))
    numbers: Numbers = {"build_s": time.perf_counter() - started, "nlist": index.nlist, "nprobe": index.nprobe}
    numbers |= {"n_documents": len(offsets) - 1, "n_centroids": len(values)}
    ids, queries = prepared.documents()[0], prepared.query_vectors()
    numbers["bytes"] = _bytes(index, len(values), ids)
    find = _finder(index, ids, np.repeat(np.arange(len(ids)), np.diff(offsets)))
    set_faiss_threads(1)
    find(queries[:1], _ROWS_FOR_10)
    timed = range(min(N_TIMED, len(queries)))
    numbers |= latency_ms(lambda number: find(queries[number : number + 1], _ROWS_FOR_10), timed)
    numbers["peak_rss_bytes"] = peak_rss_bytes()
    set_faiss_threads(OpenOptions().n_threads)
    ten = [found[:10] for found in find(queries, _ROWS_FOR_10)]
    return numbers | judged(prepared, str(parameters["representation"]), ten, find(queries, _ROWS_FOR_100))


def _built(vectors: Floats, factory: str) -> Any:  # noqa: ANN401
    import faiss

    nlist = nlist_for(len(vectors))
    index: Any = faiss.index_factory(vectors.shape[1], f"IVF{nlist},{factory}", faiss.METRIC_INNER_PRODUCT)
    index.nprobe = max(_LISTS_AT_LEAST, round(nlist * _LISTS_READ))
    index.train(vectors)
    index.add(vectors)
    return index


def _bytes(index: Any, n_rows: int, ids: list[str]) -> dict[str, int]:  # noqa: ANN401
    codebook = index.pq.centroids.size() if hasattr(index, "pq") else index.d
    return {
        "centroids": 0,
        "codes": n_rows * (index.code_size + _ROW_BYTES),
        "quantizers": 4 * (index.nlist * index.d + codebook),
        "ids": sum(8 + len(each.encode()) for each in ids),
    }


def _finder(index: Any, ids: list[str], owners: npt.NDArray[np.int64]) -> Callable[[Floats, int], list[Found]]:  # noqa: ANN401
    """A function of queries and how many rows to ask for: documents by the best of their rows."""

    def find(queries: Floats, n_rows: int) -> list[Found]:
        scores, rows = cast(
            "tuple[Floats, npt.NDArray[np.int64]]", index.search(queries, min(n_rows, len(owners)))
        )
        return [_documents(*each) for each in zip(scores, rows, strict=True)]

    def _documents(scores: Floats, rows: npt.NDArray[np.int64]) -> Found:
        scores, rows = scores[rows >= 0], rows[rows >= 0]
        docs, first = np.unique(owners[rows], return_index=True)
        order = np.argsort(first)[:100]
        best = scores[first[order]].tolist()
        return [(ids[doc], score) for doc, score in zip(docs[order].tolist(), best, strict=True)]

    return find
