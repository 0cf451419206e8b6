"""Measures one peer; runs in the peer's own environment, each function in a fresh process.

Imports of Quarry's own here are those that need no more than `bench.peers.registry.CORE_REQUIREMENTS`.
"""

from __future__ import annotations

import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.latency import latency_ms
from bench.peers.protocol import Corpus, PeerIndex
from bench.prepared import Prepared
from bench.process_memory import peak_rss_bytes, rss_bytes
from bench.trec_run import write_run
from engine.onnx_session import import_onnxruntime

__all__ = ["build", "search"]

Parameters = dict[str, object]
Numbers = dict[str, object]


def build(parameters: Parameters) -> Numbers:
    """Build a peer's index of prepared vectors, one mean vector a document.

    Args:
        parameters: ``module``, ``settings``, ``folder``, ``requirements``, ``prepared``, and ``with_texts``:
            whether texts are stored.

    Returns:
        build_s, peak_rss_bytes (of the whole process), disk_bytes, n_files, and the versions of the peer.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    ids, texts = prepared.documents()
    vectors = np.array(prepared.vectors("mean")[0])
    folder = Path(str(parameters["folder"]))
    index = _index(parameters)
    _import(str(parameters["module"]))
    started = time.perf_counter()
    index.build(Corpus(ids, texts if parameters["with_texts"] else None, vectors))
    duration_s = time.perf_counter() - started
    return {
        "build_s": duration_s,
        "peak_rss_bytes": peak_rss_bytes(),
        **disk_usage(folder),
        "peer_versions": _versions(cast(list[str], parameters["requirements"])),
    }


def disk_usage(folder: Path) -> Numbers:
    """Bytes and number of a folder's files; of a file with holes what it takes on disk."""
    states = [file.stat() for file in folder.rglob("*") if file.is_file()]
    sizes = [min(state.st_size, getattr(state, "st_blocks", 1 << 62) * 512) for state in states]
    return {"disk_bytes": sum(sizes), "n_files": len(sizes)}


def search(parameters: Parameters) -> Numbers:
    """Open a peer's index and ask the prepared queries.

    Args:
        parameters: as of `build`, and ``text_only``, ``n_timed`` (queries that are timed), ``run`` (a file for
            the first 100 documents of every query).

    Returns:
        import_ms, open_ms, first_answer_ms, rss_bytes after it, vector_p50_ms ... (10 hits, one thread, texts
        read; not for ``text_only``), text_p50_ms ... (the query's encoding included), peak_rss_bytes.
    """
    prepared = Prepared(Path(str(parameters["prepared"])))
    texts = prepared.queries()[1]
    vectors = prepared.query_vectors()
    index = _index(parameters)
    if not parameters["text_only"]:
        import_onnxruntime()  # first of all: after USearch its import ends the process
    imported_s = _import(str(parameters["module"]))
    started = time.perf_counter()
    index.open()
    opened = time.perf_counter()
    index.search(texts[0], vectors[0], 10)
    answered = time.perf_counter()
    numbers: Numbers = {"open_ms": (opened - started) * 1e3, "first_answer_ms": (answered - opened) * 1e3}
    numbers |= {"rss_bytes": rss_bytes(), "import_ms": imported_s * 1e3}
    timed = range(min(cast(int, parameters["n_timed"]), len(texts)))
    by_text = _by_text(index, text_only=bool(parameters["text_only"]))
    if not parameters["text_only"]:
        numbers |= latency_ms(lambda number: index.search(texts[number], vectors[number], 10), timed, "vector_")
    by_text(texts[0], 10)
    numbers |= latency_ms(lambda number: by_text(texts[number], 10), timed, "text_")
    numbers["peak_rss_bytes"] = peak_rss_bytes()
    _write_answers(index, by_text, prepared, parameters)
    return numbers


def _write_answers(index: PeerIndex, by_text: Any, prepared: Prepared, parameters: Parameters) -> None:  # noqa: ANN401
    """The first 100 of every query: by text where the index encodes itself or has words only."""
    ids, texts = prepared.queries()
    if hasattr(index, "search_text") or parameters["text_only"]:
        found = [by_text(text, 100) for text in texts]
    else:
        pairs = zip(texts, prepared.query_vectors(), strict=True)
        found = [index.search(text, vector, 100) for text, vector in pairs]
    run = dict(zip(ids, map(dict, found), strict=True))
    write_run(Path(str(parameters["run"])), run, str(parameters["module"]))


def _by_text(index: PeerIndex, *, text_only: bool) -> Any:  # noqa: ANN401
    """A function of text and k: with the same encoder for all."""
    if hasattr(index, "search_text"):
        return index.search_text
    if text_only:
        nothing = np.empty(0, np.float32)
        return lambda text, k: index.search(text, nothing, k)
    from engine.encoder import open_encoder

    encoder = open_encoder()
    return lambda text, k: index.search(text, encoder.encode_query(text), k)


def _index(parameters: Parameters) -> PeerIndex:
    module = import_module(f"bench.peers.{parameters['module']}")
    made: PeerIndex = module.Index(Path(str(parameters["folder"])), parameters["settings"])
    return made


def _import(module: str) -> float:
    """Import what an adapter needs; how many seconds that took."""
    started = time.perf_counter()
    for name in import_module(f"bench.peers.{module}").IMPORTS:
        import_module(name)
    return time.perf_counter() - started


def _versions(requirements: list[str]) -> dict[str, str]:
    found = {}
    for requirement in requirements:
        name = requirement.partition("==")[0]
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
