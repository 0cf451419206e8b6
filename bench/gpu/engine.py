"""Checks whole indexes on a device, and measures a whole build."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu.harness import guarded
from bench.gpu.sizes import Floats, Size, make_queries
from bench.gpu.synthetic import make_texts
from bench.harness.records import Record
from quarry import engine
from quarry.engine import Engine

__all__ = ["build_vectors", "check_engine", "measure_build", "search_both"]

_N_TEXTS, _N_WORDS, _QUERY_WORDS = 1000, 60, 8
_N_BUILT, _BUILT_WORDS = 20_000, 100
_K = 10
_ERROR = 1e-5
_METRICS = ("ip", "cosine", "l2")
_SAMPLE_S = 0.005


def check_engine(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield whether indexes on the device answer as the exact backend does: of texts, and by each metric."""
    yield from guarded({"what": "check bundled encoder"}, partial(_check_texts, place, size, work / "texts"))
    for metric in _METRICS:
        path = work / f"index-{metric}"
        yield from guarded({"what": "check metric", "metric": metric}, partial(_check_metric, place, path, metric))


def _check_texts(place: torch.device, size: Size, path: Path) -> Iterator[Record]:
    """Build an index with the bundled encoder, and search it for texts in each mode."""
    texts = make_texts(size.count(_N_TEXTS, 30), _N_WORDS)
    engine.build(({"id": str(number), "text": text} for number, text in enumerate(texts)), path)
    queries = make_texts(5, _QUERY_WORDS)
    with Engine.open(path, backend="exact") as exact, Engine.open(path, backend="gpu", device=str(place)) as gpu:
        for mode in ("dense", "hybrid"):
            hits, expected = (each.search(queries, k=_K, mode=mode) for each in (gpu, exact))
            yield {"mode": mode, "n_documents": len(texts), **_compare(hits, expected)}


def _check_metric(place: torch.device, path: Path, metric: str) -> Iterator[Record]:
    build_vectors(path, metric, 2000)
    yield search_both(path, 3 * make_queries(20, 32), {"backend": "gpu", "device": str(place)})


def build_vectors(path: Path, metric: str, n: int) -> Path:
    """Build an index of n documents of two 32-dimensional vectors of different norms each; return its folder."""
    vectors = np.random.default_rng(5).standard_normal((n, 2, 32)).astype(np.float32)
    documents = ({"id": str(number), "vectors": pair} for number, pair in enumerate(vectors))
    engine.build(documents, path, dim=32, metric=metric)
    return path


def search_both(path: Path, queries: Floats, options: Mapping[str, Any]) -> Record:
    """Return whether an index with some options answers as with backend "exact", and the largest difference."""
    with Engine.open(path, backend="exact") as exact, Engine.open(path, **options) as other:
        return _compare(other.search_vectors(queries, k=_K), exact.search_vectors(queries, k=_K))


def _compare(hits: Any, expected: Any) -> Record:  # noqa: ANN401 - lists of hits, for each query
    same = all([hit.id for hit in one] == [hit.id for hit in two] for one, two in zip(hits, expected, strict=True))
    pairs = zip(
        (hit.score for one in hits for hit in one), (hit.score for two in expected for hit in two), strict=True
    )
    error = max(abs(one - two) / max(1.0, abs(two)) for one, two in pairs)
    return {"sound": same and error <= _ERROR, "same_hits": same, "error": error}


def measure_build(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield the rate of a whole build with the bundled encoder on the device, and the share of each package."""
    from quarry.engine.encoding.opening import open_encoder

    texts = make_texts(size.count(_N_BUILT, 30), _BUILT_WORDS)
    encoder = open_encoder(runtime="torch")
    encoder.encode_query("warm")  # the model is loaded at first use
    counts: Counter[str] = Counter()
    ended = threading.Event()
    sampler = threading.Thread(target=_sample, args=(counts, ended, threading.get_ident()))
    sampler.start()
    started = time.perf_counter()
    report = engine.build(texts, work / "build", encoder=encoder)
    seconds = time.perf_counter() - started
    ended.set()
    sampler.join()
    shares = {name: n / counts.total() for name, n in counts.most_common(10)}
    rates = {"documents_s": len(texts) / seconds, "tokens_s": report.n_tokens / seconds}
    yield {"what": "build", "n_documents": len(texts), "s": seconds, **rates, "shares": shares}
    with Engine.open(work / "build", backend="gpu", device=str(place)) as index:
        verified = index.verify().n_documents
    yield {"what": "check build", "sound": verified == report.n_documents == len(texts)}


def _sample(counts: Counter[str], ended: threading.Event, builder: int) -> None:
    """Count in which module of quarry the building thread is, a hundred times a second or more."""
    while not ended.wait(_SAMPLE_S):
        frame = sys._current_frames().get(builder)
        while frame and not str(frame.f_globals.get("__name__")).startswith("quarry."):
            frame = frame.f_back
        name = str(frame.f_globals["__name__"]) if frame else "other"
        counts[".".join(name.split(".")[1:4])] += 1
