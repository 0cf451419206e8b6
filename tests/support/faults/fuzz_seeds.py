"""The targets of the fuzzer with valid inputs to start from, made of small files of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from support.faults import fuzz_targets as read
from support.faults.fuzz_targets import DIM, GRAPH_OF, GRAPH_ROWS, N_DOCS, NLIST, SECTIONS, DiskTarget, FileTarget
from support.faults.memory_directory import MemoryDirectory
from support.indexes.format_samples import FILE_ID, container, manifest, quantizer, section, segment_record

from quarry.formats.bundle.encoder import EncoderSettings, ParityRecord, RetrievalRecord, load_bundle, write_bundle
from quarry.formats.bundle.folder import MANIFEST_NAME, SourceRecord
from quarry.formats.bundle.folder import FileDigest as Digest
from quarry.formats.bundle.onnx_check import check_graph
from quarry.formats.bundle.plan import PlanProfile, PlanRecord, read_plans, write_plan
from quarry.formats.bundle.reranker import (
    RerankerParity,
    RerankerSettings,
    load_reranker_bundle,
    write_reranker_bundle,
)
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.packing import pack
from quarry.formats.container.reader import ContainerReader
from quarry.formats.documents.spans import pack_spans
from quarry.formats.manifest import SegmentRecord
from quarry.formats.shard_set import ShardSet
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.hnsw_graph import NONE, HnswGraph, graph_name, write_graph
from quarry.formats.vectors.quantizer import write_quantizer

METADATA = [
    {"n": 3, "tags": ["a", "é", "a"], "in": {"deep": None, "x": 1.5}}, {"n": 1.5, "flag": True}, {},
    {"n": -(2**63)}, {"text": "long " * 30, "tags": []}, {"flag": False, "tags": ["b"], "n": 3},
    {"text": "c", "n": [1, 2, 2]},
]  # fmt: skip
FILES: Mapping[str, bytes | Path] = {
    "model.onnx": b"graph",
    "tokenizer.json": b"{}",
    "LICENSE": b"Do what you like.",
}
SOURCE = SourceRecord("model.safetensors", "0" * 64)
ENCODER = EncoderSettings(
    name="Tiny é", precision="int8", dim=2, window=16, pooling="mean", normalize=True, query_prefix="q: ",
    document_prefix="", beta=10.0, trained_representation=None, source=SOURCE, license="mit",
    parity=ParityRecord(3, 0.99, 0.9, 0.99, 0.98), retrieval=RetrievalRecord("some", 9, 0.5, 0.5),
)  # fmt: skip
RERANKER = RerankerSettings("Tiny", "int8", 16, SOURCE, "mit", RerankerParity(3, 0.01, 0.1, 0.99, 0.98))

PROFILES = (PlanProfile((1, 1), (1, 16), (1, 64)), PlanProfile((1, 1), (32, 128), (64, 256)))
PLAN = PlanRecord("0" * 32, "1" * 64, "tensorrt", "11.4.0.106", "sm90", "fp16", PROFILES, Digest("2" * 64, 6))

Read = Callable[[MemoryDirectory, FileRecord], None]


class Target(NamedTuple):
    """A function to call, valid inputs, and the number of their parts."""

    use: Callable[[bytes], object]
    seeds: list[bytes]
    n_parts: int = 1


def targets(folder: Path) -> dict[str, Target]:
    """Return all targets by name; some of them use `folder`, an empty folder."""
    directory = Directory(folder)
    made = quantizer(nlist=NLIST, dim=DIM, n_sub=DIM, measured=True)
    coded = write_quantizer(directory, made)
    record = segment_record(
        directory,
        [f"id {n} é" for n in range(N_DOCS)],
        (1, 3),
        made,
        coded.name,
        dim=DIM,
        metadata=METADATA.__getitem__,
    )
    return (
        _of_sections(directory, record.file) | _of_files(directory, record, coded) | _of_bytes() | _on_disk(folder)
    )


def _of_sections(directory: Directory, record: FileRecord) -> dict[str, Target]:
    file = ContainerReader(directory, record.name, FileKind.SEGMENT)
    n_rows = file.section("list_rows", np.uint32, (None,)).shape[0]
    return {
        name: Target(target, [target.seed(file, N_DOCS, n_rows)], 1 + len(target.kinds))
        for name, target in SECTIONS.items()
    }


def _of_files(directory: Directory, segment: SegmentRecord, coded: FileRecord) -> dict[str, Target]:
    """Make the targets that read whole files; the sections of a segment have other targets."""

    def target(name: str, read: Read, fixed: bool = False) -> Target:
        blob = (directory.path / name).read_bytes()
        body = blob[64 : int.from_bytes(blob[-64:-56], "little")]
        found = FileTarget(blob[:64], name, read, body if fixed else None)
        return Target(found, [found.seed(blob)], 1 if fixed else 2)

    apart = write_quantizer(directory, quantizer(1, NLIST, DIM, DIM, input_dim=6, apart=True, by_residual=True))
    deleted = write_tombstones(directory, FILE_ID, np.arange(N_DOCS) % 3 == 0)
    committed = manifest([segment, segment_record(directory, ["0"], dim=DIM)], [coded, apart], beta=1.5)
    committed.commit(directory)
    shards = ShardSet(generation=1, set_id=FILE_ID, parent_id=bytes(16), folders=("shard-0", "shard-1", "shard-2"))
    shards.commit(directory)
    write_graph(directory, GRAPH_OF, a_graph())
    return {
        "manifest": target(committed.name, read.manifest, fixed=True),
        "shards": target(shards.name, read.shard_set, fixed=True),
        "segment": target(segment.file.name, read.segment, fixed=True),
        "tombstones": target(deleted.name, read.tombstones),
        "quantizer": target(coded.name, read.quantizer),
        "quantizer-apart": target(apart.name, read.quantizer),
        "graph": target(graph_name(GRAPH_OF.file_id), read.graph),
    }


def a_graph() -> HnswGraph:
    """Make a graph with two levels."""
    levels = np.array([1] * 9 + [2] * 3, np.uint8)
    neighbors = [
        [n - 1 if n else 1, NONE, 0, 0] + ([9 if n > 9 else 10, NONE] if n > 8 else []) for n in range(12)
    ]
    assert len(levels) == GRAPH_ROWS
    return HnswGraph(2, 9, levels, np.array(sum(neighbors, []), np.uint32))  # noqa: RUF017


def _of_bytes() -> dict[str, Target]:
    whole = container({"fields": {}, "sections": {"a": section()}}, bytes(64))
    value = [1, -1, 1.5, None, True, "é", b"\0", {"a": [1 << 63, "x" * 40]}, [0] * 20]
    return {
        "frame": Target(read.frame, [whole[:56] + whole[64:]]),
        "spans": Target(read.spans, [pack_spans([[(0, 4), (5, 700)], [(1, 2)]])]),
        "packing": Target(read.packed_value, [pack({"v": value}), pack(value)]),
    }


def _on_disk(folder: Path) -> dict[str, Target]:
    """Make the targets whose readers open a file by its path."""
    encoder = write_bundle(folder / "encoder", ENCODER, FILES).path
    reranker = write_reranker_bundle(folder / "reranker", RERANKER, FILES).path
    plans = folder / "plans"
    plans.mkdir()
    write_plan(plans, PLAN, b"a plan")
    plan = plans / f"{PLAN.stem}.json"
    onnx = folder / "model.onnx"
    onnx.write_bytes(a_graph_of_operators())
    read_all = {
        "encoder": (encoder / MANIFEST_NAME, lambda: load_bundle(encoder)),
        "reranker": (reranker / MANIFEST_NAME, lambda: load_reranker_bundle(reranker)),
        "plan": (plan, lambda: read_plans(plans)),
        "onnx": (onnx, lambda: check_graph(onnx, {"model.onnx.data": 1000})),
    }
    return {name: Target(DiskTarget(path, use), [path.read_bytes()]) for name, (path, use) in read_all.items()}


def a_graph_of_operators() -> bytes:
    """Make an ONNX model: a node with a graph and tensors in its attributes, an initializer in another file."""

    def number(value: int) -> bytes:
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])

    def part(field: int, *contents: bytes) -> bytes:
        content = b"".join(contents)
        return number(field << 3 | 2) + number(len(content)) + content

    def outside(key: str, value: str) -> bytes:
        return part(13, part(1, key.encode()), part(2, value.encode()))

    tensor = part(8, b"w") + outside("location", "model.onnx.data") + outside("offset", "8") + b"\x70\x01"
    inner = part(1, part(4, b"Identity"))
    sparse = part(1, part(9, b"\0" * 4)) + part(2, part(9, b"\0" * 8))
    attributes = part(5, part(6, inner)) + part(5, part(5, part(9, b"\0" * 4))) + part(5, part(22, sparse))
    node = part(1, part(4, b"If"), part(7, b"com.microsoft"), attributes)
    return b"\x08\x08" + part(7, node, part(5, tensor), part(15, sparse))
