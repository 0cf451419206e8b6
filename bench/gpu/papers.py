"""Measures two tables of the papers on a device, at their sizes.

Table 4 of Tang et al. 2021: a query over 3.2 million documents of 8 centroids with 768 dimensions, in two steps
(the maximum, then the softmax of the best), by the softmax of all, with one vector a document, and by late
interaction with all token vectors. No device holds these: those of as many documents as fit are read again until
all are counted. Table 7 of Lin et al. 2022: a query text through DistilBERT with [CLS], with agg*, and with agg*
without the MLM head.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.gpu.harness import guarded, median_ms, open_backend
from bench.gpu.shapes import DRY_SHAPE, N_POSITIONS, EncoderShape, make_weights
from bench.gpu.sizes import Size, make_queries
from bench.gpu.synthetic import SyntheticTable, make_segment, make_texts
from bench.harness.records import Record
from quarry.engine.backends.gpu.backend import GpuBackend
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.runtimes.torch_runner import TorchRunner
from quarry.engine.encoding.tokenizer import BundleTokenizer
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.folder import MODEL_NAME

__all__ = ["measure_papers"]

_N_DOCS, _K, _DIM, _BETA = 3_200_000, 8, 768, 1.0
_N_HITS, _N_CANDIDATES = 100, 1000
_DOCUMENT_TOKENS, _QUERY_TOKENS, _RESIDENT_DOCS = 128, 16, 80_000  # 16 GB of token vectors
_PAPER_MS = {"two steps": 180.0, "softmax of all": 880.0, "one vector": 100.0, "late interaction": 940.0}
_N_QUERIES, _QUERY_WORDS = 1000, 6
_DISTILBERT = EncoderShape("DistilBERT", 6, 768, 3072, 12)
_N_CLS, _N_DIMS = 128, 640
_PAPER_P50_MS = {"CLS": 16.0, "agg with MLM": 19.0, "agg without MLM": 19.0}
_ERROR, _N_CHECKED = 1e-5, 20


def measure_papers(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield a record for each row of both tables, and a check of the search in two steps."""
    n_docs = size.count(_N_DOCS)
    several, one = (np.full(n_docs, n) for n in (_K, 1))
    about: Record = {"n_documents": n_docs, "dim": _DIM}
    yield from guarded(about, partial(_time_centroids, place, size, several, ("two steps", "softmax of all")))
    yield from guarded(about, partial(_time_centroids, place, size, one, ("one vector",)))
    yield from guarded({**about, "what": "table 4"}, lambda: [_time_late_interaction(place, size, n_docs)])
    for name in _PAPER_P50_MS:
        yield from guarded({"what": "table 7", "way": name}, partial(_time_query, place, size, work, name))


def _time_centroids(
    place: torch.device, size: Size, lengths: npt.NDArray[np.int64], ways: tuple[str, ...]
) -> Iterator[Record]:
    """Time ways to search with all centroids on the device."""
    backend = open_backend(place, make_segment(SyntheticTable(lengths, _DIM, "float16")), kernels=True)
    query = torch.from_numpy(make_queries(1, _DIM)).to(place)
    n = min(_N_CANDIDATES, len(lengths) - 1)
    calls: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
        "two steps": partial(_search, backend, query, n, None, _BETA),
        "softmax of all": partial(_search, backend, query, n, _BETA, _BETA),
        "one vector": partial(_search, backend, query, n, None, None),
    }
    with torch.inference_mode():
        for way in ways:
            ms = median_ms(calls[way], place, size.n_calls)
            yield {"what": "table 4", "way": way, "ms": ms, "paper_ms": _PAPER_MS[way]}
        if "two steps" in ways:
            docs, scores = calls["two steps"]()
            yield {"what": "check two steps", **_check(backend, query, docs[0], scores[0])}


def _search(
    backend: GpuBackend, query: torch.Tensor, n: int, first_beta: float | None, beta: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the best documents and their scores, (1, n) each, of n candidates that another aggregation found."""
    assert backend._final is not None
    docs, _ = backend._scan.find(query, n, None, first_beta)
    scores, order = backend._final.document_scores(query, docs, beta).topk(min(_N_HITS, n), dim=1)
    return docs.gather(1, order), scores


def _check(backend: GpuBackend, query: torch.Tensor, docs: torch.Tensor, scores: torch.Tensor) -> Record:
    """Return whether the first scores are those of a softmax in float64."""
    assert isinstance(backend._final, DeviceRows)
    rows = (docs[:_N_CHECKED, None] * _K + torch.arange(_K, device=docs.device)).reshape(-1)
    products = (backend._final.values[rows].double() @ query[0].double()).view(-1, _K)
    expected = (torch.softmax(_BETA * products, 1) * products).sum(1)
    error = float((expected - scores[:_N_CHECKED].double()).abs().max())
    return {"sound": error <= _ERROR and bool((scores.diff() <= 0).all()), "error": error}


def _time_late_interaction(place: torch.device, size: Size, n_docs: int) -> Record:
    """Time the sum over a query's tokens of the maximum over a document's, by one product for each block."""
    n_resident = min(n_docs, size.count(_RESIDENT_DOCS))
    kind = torch.float16 if place.type == "cuda" else torch.float32
    tokens = torch.empty((n_resident * _DOCUMENT_TOKENS, _DIM), dtype=kind, device=place).normal_(std=_DIM**-0.5)
    query = torch.from_numpy(make_queries(_QUERY_TOKENS, _DIM)).to(place, kind)

    def search() -> torch.Tensor:
        best = torch.zeros(0, device=place)
        for low in range(0, n_docs, n_resident):
            scores = (tokens @ query.T).view(n_resident, _DOCUMENT_TOKENS, _QUERY_TOKENS).amax(1).float().sum(1)
            best = torch.cat([best, scores[: n_docs - low]])
            best = best.topk(min(_N_HITS, len(best))).values
        return best

    ms = median_ms(search, place, max(1, size.n_calls // 4))
    about: Record = {"document_tokens": _DOCUMENT_TOKENS, "resident_documents": n_resident}
    return {"way": "late interaction", **about, "ms": ms, "paper_ms": _PAPER_MS["late interaction"]}


def _time_query(place: torch.device, size: Size, work: Path, name: str) -> Iterator[Record]:
    """Time query texts, one at a time, to a vector in main memory."""
    bundle = load_bundle(default_bundle_path())
    tokenizer, shape = BundleTokenizer(bundle), DRY_SHAPE if size.is_dry else _DISTILBERT
    folder = work / name
    folder.mkdir()
    n_words = len(json.loads(bundle.tokenizer_path.read_text("utf-8"))["model"]["vocab"])
    _write_graph(folder / MODEL_NAME, shape, n_words, name)
    with_graph: Any = SimpleNamespace(path=folder, settings=bundle.settings)
    runner = TorchRunner(with_graph, MODEL_NAME, place.type)
    frame, times = tokenizer.query_frame, []
    for text in make_texts(size.count(_N_QUERIES, 4), _QUERY_WORDS) * 2:  # the first time they warm up
        started = time.perf_counter()
        ids = frame.around(tokenizer.tokenize(text, frame).ids)[np.newaxis]
        runner.run("pooled", ids, np.ones_like(ids)).cpu()
        times.append((time.perf_counter() - started) * 1e3)
    p1, p50, p99 = np.quantile(times[len(times) // 2 :], (0.01, 0.5, 0.99)).tolist()
    yield {"ms": p50, "p1_ms": p1, "p99_ms": p99, "paper_p50_ms": _PAPER_P50_MS[name]}


def _write_graph(path: Path, shape: EncoderShape, n_words: int, name: str) -> None:
    """Write the graph of an encoder with random weights and [CLS] or agg* as its vector."""
    import onnx

    from quarry.exporters.checkpoint.checkpoint import Network
    from quarry.exporters.checkpoint.head import Aggregation, Head, Projection
    from quarry.exporters.checkpoint.networks import NetworkShape
    from quarry.exporters.graph.bert import build_backbone
    from quarry.exporters.graph.head import build_encoder_model

    generator, dim = np.random.default_rng(0), shape.dim

    def layer(n: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        return generator.standard_normal((n, dim), np.float32) * dim**-0.5, np.zeros(n, np.float32)

    weights = dict(make_weights(shape, n_words))
    predictions = "cls.predictions.transform."
    weights |= dict(zip((f"{predictions}dense.weight", f"{predictions}dense.bias"), layer(dim), strict=True))
    norm = {"weight": np.ones(dim, np.float32), "bias": np.zeros(dim, np.float32)}
    weights |= {f"{predictions}LayerNorm.{part}": values for part, values in norm.items()}
    weights["cls.predictions.bias"] = np.zeros(n_words, np.float32)
    sizes = NetworkShape(shape.n_layers, shape.n_heads, dim, N_POSITIONS, 1e-12, token_types=False)
    mlm = name == "agg with MLM"
    terms, cls = (Projection(*layer(n), "identity") for n in (1, _N_CLS))
    parts = None if name == "CLS" else Aggregation(_N_DIMS, terms, cls, n_words, mlm)
    head = Head("cls" if parts is None else "aggretriever", parts is None, aggregation=parts)
    onnx.save(build_encoder_model(build_backbone(Network(path, sizes, weights), mlm), head), path)
