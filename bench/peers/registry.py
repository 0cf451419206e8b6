"""The rows of the comparison: settings of Quarry, and other libraries."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from bench.data.prepared import cache_folder

__all__ = ["CORE_REQUIREMENTS", "PEERS", "QUARRY", "Entry", "environment_python"]

CORE_REQUIREMENTS = ("numpy", "onnxruntime", "tokenizers", "msgpack", "zstandard", "xxhash", "tqdm")
"""Packages that every environment needs to encode queries with Quarry's encoder."""


@dataclass(frozen=True)
class Entry:
    """One row of the comparison.

    Attributes:
        name: the name of the row.
        module: the adapter, relative to `bench.peers.adapters`.
        settings: passed to the adapter.
        environment: name of a virtual environment; "": that of this command.
        text_only: whether it searches words and no vectors.
        stores_text: whether it stores the documents' texts.
        encodes: whether a build from text, encoding included, is measured too; only for Quarry, and only for some
            settings, because encoding takes long.
    """

    name: str
    module: str
    settings: dict[str, object] = field(default_factory=dict)
    environment: str = ""
    text_only: bool = False
    stores_text: bool = True
    encodes: bool = False

    @property
    def requirements(self) -> tuple[str, ...]:
        """Packages to install."""
        names: tuple[str, ...] = import_module(f"bench.peers.adapters.{self.module}").REQUIREMENTS
        return names


def _library(name: str, module: str, **settings: object) -> Entry:
    return Entry(name, module, settings, stores_text=False)


def _quarry(name: str, representation: str, mode: str, *, encodes: bool = False, **build: object) -> Entry:
    kind = representation.partition("-")[0]  # with its defaults, of which the rows are that build from texts
    settings: dict[str, object] = {"representation": kind, "build": build, "mode": mode, "key": representation}
    return Entry(name, "quarry_index", settings, encodes=encodes)


QUARRY = (
    _quarry("Quarry (default: hybrid)", "pieces-24", "hybrid", encodes=True),
    _quarry("Quarry, dense only", "pieces-24", "dense"),
    _quarry("Quarry, dense, a vector for 64 tokens", "pieces-64", "dense", code_bytes=0),
    _quarry("Quarry, dense, codes of 96 bytes alone", "pieces-24", "dense", centroids="none", code_bytes=96),
    _quarry("Quarry, dense, codes of 48 bytes alone", "pieces-24", "dense", centroids="none"),
    _quarry("Quarry, dense, one mean vector, int8", "mean", "dense", encodes=True, code_bytes=0),
    _quarry("Quarry, dense, one mean vector, codes of 96 bytes", "mean", "dense", centroids="none", code_bytes=96),
)

PEERS = (
    _library("FAISS Flat", "faiss_index", factory="Flat"),
    _library("FAISS HNSW32", "faiss_index", factory="HNSW32,Flat"),
    _library("FAISS IVF, PQ48x4fs, refined", "faiss_index", factory="IVF{nlist},PQ96x4fs,RFlat"),
    _library("hnswlib", "hnswlib_index"),
    _library("USearch bf16", "usearch_index"),
    Entry("LanceDB, no index", "databases.lancedb_index", {"index": False}, "lancedb"),
    Entry("LanceDB, IVF_PQ", "databases.lancedb_index", {"index": True}, "lancedb"),
    Entry("Chroma", "databases.chroma_index", {}, "chroma"),
    Entry("txtai", "databases.txtai_index", {}, "txtai"),
    Entry("Qdrant Edge", "databases.qdrant_edge_index", {}, "qdrant_edge"),
    Entry("Milvus Lite", "databases.milvus_lite_index", {}, "milvus_lite"),
    Entry("zvec", "databases.zvec_index", {}, "zvec"),
    Entry("bm25s", "bm25s_index", text_only=True, stores_text=False),
    Entry("tantivy", "tantivy_index", {}, "tantivy", text_only=True),
)


def environment_python(entry: Entry) -> Path | None:
    """Return the interpreter of a row's environment, which may not exist yet; None: this interpreter."""
    if not entry.environment:
        return None
    folder = "Scripts" if os.name == "nt" else "bin"
    return cache_folder() / "peers" / entry.environment / folder / "python"
