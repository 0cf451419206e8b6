"""Measures one library in its own environment, each function in a new process.

What is imported here from Quarry needs no more than `bench.peers.registry.CORE_REQUIREMENTS`.
"""

from __future__ import annotations

import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.data.prepared import Prepared
from bench.data.quality import write_run
from bench.harness.fresh_process import peak_rss_bytes, rss_bytes
from bench.harness.latency import latency_ms
from bench.peers.protocol import Corpus, PeerIndex, Ranking
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime

__all__ = ["build", "search"]

Parameters = dict[str, object]
Numbers = dict[str, object]


def build(parameters: Parameters) -> Numbers:
    """Build a library's index of prepared vectors.

    Args:
        parameters: ``module``, ``settings``, ``folder``, ``requirements``, ``prepared``, and ``with_texts``:
            whether texts are indexed.

    Returns:
        build_s, peak_rss_bytes (of the whole process), disk_bytes, n_files, and peer_versions.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    ids, texts = prepared.documents()
    values, offsets = prepared.vectors("mean")
    corpus = Corpus(ids, texts if parameters["with_texts"] else None, np.array(values), offsets)
    folder = Path(str(parameters["folder"]))
    index = _make_index(parameters)
    _import_modules(str(parameters["module"]))
    started = time.perf_counter()
    index.build(corpus)
    duration_s = time.perf_counter() - started
    return {
        "build_s": duration_s,
        "peak_rss_bytes": peak_rss_bytes(),
        **_disk_usage(folder),
        "peer_versions": _find_versions(cast(list[str], parameters["requirements"])),
    }


def _disk_usage(folder: Path) -> Numbers:
    """Return bytes and number of a folder's files; of a sparse file the bytes on disk."""
    states = [file.stat() for file in folder.rglob("*") if file.is_file()]
    sizes = [min(state.st_size, getattr(state, "st_blocks", 1 << 62) * 512) for state in states]
    return {"disk_bytes": sum(sizes), "n_files": len(sizes)}


def search(parameters: Parameters) -> Numbers:
    """Open a library's index and run the prepared queries.

    Args:
        parameters: as of `build`, and ``text_only``, ``n_timed`` (number of timed queries), ``run`` (TREC run file
            for the first 100 documents of every query).

    Returns:
        import_ms, open_ms, first_answer_ms, rss_bytes after it, vector_p50_ms ... (10 hits, one thread, texts
        read; not for ``text_only``), text_p50_ms ... (the query's encoding included), peak_rss_bytes.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    texts = prepared.queries()[1]
    index = _make_index(parameters)
    if not parameters["text_only"]:
        import_onnxruntime()  # before USearch, after which its import ends the process
    vectors = list(prepared.query_vectors())
    imported_s = _import_modules(str(parameters["module"]))
    started = time.perf_counter()
    index.open()
    opened = time.perf_counter()
    index.search(texts[0], vectors[0], 10)
    answered = time.perf_counter()
    numbers: Numbers = {"open_ms": (opened - started) * 1e3, "first_answer_ms": (answered - opened) * 1e3}
    numbers |= {"rss_bytes": rss_bytes(), "import_ms": imported_s * 1e3}
    timed = range(min(cast(int, parameters["n_timed"]), len(texts)))
    search_text = _make_text_search(index, parameters)
    if not parameters["text_only"]:
        numbers |= latency_ms(lambda number: index.search(texts[number], vectors[number], 10), timed, "vector_")
    search_text(texts[0], 10)
    numbers |= latency_ms(lambda number: search_text(texts[number], 10), timed, "text_")
    numbers["peak_rss_bytes"] = peak_rss_bytes()
    if hasattr(index, "search_text") or parameters["text_only"]:
        hits = [search_text(text, 100) for text in texts]
    else:
        hits = [index.search(text, vector, 100) for text, vector in zip(texts, vectors, strict=True)]
    _write_run(hits, prepared, parameters)
    return numbers


def _write_run(rankings: list[Ranking], prepared: Prepared, parameters: Parameters) -> None:
    """Write the first 100 documents of every query."""
    ids, _ = prepared.queries()
    run = dict(zip(ids, map(dict, rankings), strict=True))
    write_run(Path(str(parameters["run"])), run, str(parameters["module"]))


def _make_text_search(index: PeerIndex, parameters: Parameters) -> Any:  # noqa: ANN401
    """Return a function of text and k, with the same encoder for all libraries."""
    if hasattr(index, "search_text"):
        return index.search_text
    if parameters["text_only"]:
        nothing = np.empty(0, np.float32)
        return lambda text, k: index.search(text, nothing, k)
    from quarry.engine import open_encoder

    encode = open_encoder().encode_query
    return lambda text, k: index.search(text, encode(text), k)


def _make_index(parameters: Parameters) -> PeerIndex:
    module = import_module(f"bench.peers.adapters.{parameters['module']}")
    index: PeerIndex = module.Index(Path(str(parameters["folder"])), parameters["settings"])
    return index


def _import_modules(module: str) -> float:
    """Import an adapter's modules and return the seconds that it took."""
    started = time.perf_counter()
    for name in import_module(f"bench.peers.adapters.{module}").IMPORTS:
        import_module(name)
    return time.perf_counter() - started


def _find_versions(requirements: list[str]) -> dict[str, str]:
    versions = {}
    for requirement in requirements:
        name = requirement.partition("==")[0]
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
