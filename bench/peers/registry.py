"""Who is measured: Quarry in several settings, and its peers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from bench.prepared import cache_folder

__all__ = ["CORE_REQUIREMENTS", "PEERS", "QUARRY", "UNMEASURED", "Entry", "environment_python"]

CORE_REQUIREMENTS = ("numpy", "onnxruntime", "tokenizers", "msgpack", "zstandard", "xxhash", "tqdm")
"""What every environment needs besides: queries are encoded there by Quarry's encoder."""


@dataclass(frozen=True)
class Entry:
    """One row of the comparison.

    Attributes:
        name: of the row.
        module: the adapter, in `bench.peers`.
        settings: passed to it.
        environment: a virtual environment's name; "": the one this command runs in.
        text_only: whether it searches words and no vectors.
        stores_text: whether it keeps the documents' texts.
    """

    name: str
    module: str
    settings: dict[str, object] = field(default_factory=dict)
    environment: str = ""
    text_only: bool = False
    stores_text: bool = True

    @property
    def requirements(self) -> tuple[str, ...]:
        """What to install for it."""
        found: tuple[str, ...] = import_module(f"bench.peers.{self.module}").REQUIREMENTS
        return found


def _library(name: str, module: str, **settings: object) -> Entry:
    return Entry(name, module, settings, stores_text=False)


def _quarry(name: str, representation: str, mode: str, **build: object) -> Entry:
    kind, *numbers = representation.split("-")
    fields = {"tokens_per_piece": int(numbers[0])} if numbers else {}
    settings: dict[str, object] = {
        "representation": [kind, fields],
        "build": build,
        "mode": mode,
        "key": representation,
    }
    return Entry(name, "quarry_index", settings)


QUARRY = (
    _quarry("Quarry (default: hybrid)", "pieces-24", "hybrid"),
    _quarry("Quarry, dense only", "pieces-24", "dense"),
    _quarry("Quarry, dense, a vector for 64 tokens", "pieces-64", "dense", code_bytes=24),
    _quarry("Quarry, dense, codes of 48 bytes alone", "pieces-24", "dense", centroids="none"),
    _quarry("Quarry, dense, one mean vector, int8", "mean", "dense", code_bytes=0),
    _quarry("Quarry, dense, one mean vector, codes alone", "mean", "dense", centroids="none", code_bytes=96),
)

PEERS = (
    _library("FAISS Flat", "faiss_index", factory="Flat"),
    _library("FAISS HNSW32", "faiss_index", factory="HNSW32,Flat"),
    _library("FAISS IVF, PQ48x4fs, refined", "faiss_index", factory="IVF{nlist},PQ96x4fs,RFlat"),
    _library("hnswlib", "hnswlib_index"),
    _library("USearch bf16", "usearch_index"),
    Entry("LanceDB, no index", "lancedb_index", {"index": False}, "lancedb"),
    Entry("LanceDB, IVF_PQ", "lancedb_index", {"index": True}, "lancedb"),
    Entry("Chroma", "chroma_index", {}, "chroma"),
    Entry("txtai", "txtai_index", {}, "txtai"),
    Entry("Qdrant Edge", "qdrant_edge_index", {}, "qdrant_edge"),
    Entry("Milvus Lite", "milvus_lite_index", {}, "milvus_lite"),
    Entry("zvec", "zvec_index", {}, "zvec"),
    Entry("bm25s", "bm25s_index", text_only=True, stores_text=False),
    Entry("tantivy", "tantivy_index", {}, "tantivy", text_only=True),
)

UNMEASURED = {
    "PyLate with FastPlaid": "pins torch 2.11.0 exactly, and needs an encoder trained for late interaction",
    "PyLate with PLAID": "needs an encoder trained for late interaction",
}
"""Peers that cannot stand in this comparison, and why."""


def environment_python(entry: Entry) -> Path | None:
    """The interpreter of a peer's own environment, whether it is there or not; None: this one."""
    if not entry.environment:
        return None
    folder = "Scripts" if os.name == "nt" else "bin"
    return cache_folder() / "peers" / entry.environment / folder / "python"
