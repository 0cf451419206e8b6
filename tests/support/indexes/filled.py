"""Segments of many random centroids, whose documents are all alike, and a graph of them: made in little time."""

from __future__ import annotations

import numpy as np

from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.segments.new_quantizer import ListPlan
from quarry.engine.indexer.segments.segment_builder import SegmentBuilder
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.documents.spans import pack_spans
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.hnsw_graph import HnswGraph, write_graph
from quarry.formats.vectors.quantizer import Quantizer, StoredQuantizer, write_quantizer

M = 16


def fill(directory: Directory, n_docs: int, n_each: int, n_lists: int | None = None) -> None:
    """Commit documents of `n_each` random centroids, and write a random graph of them.

    Args:
        directory: of an index without documents.
        n_docs: number of documents.
        n_each: centroids of each.
        n_lists: of a quantizer with random centroids and codebooks; None: one is trained.
    """
    generator, n_rows = np.random.default_rng(0), n_docs * n_each
    manifest = Snapshot(directory).manifest
    dim, quantizer = manifest.settings.dim, None
    if n_lists is not None:
        book = generator.standard_normal((dim, 16, 1), np.float32)
        coarse = generator.standard_normal((n_lists, dim), np.float32)
        made = Quantizer(coarse, book, book, None, by_residual=False)
        quantizer = StoredQuantizer(made, write_quantizer(directory, made))
    builder = SegmentBuilder(directory, ListPlan(manifest.settings, 2, Thresholds()))
    for doc in range(n_docs):
        vectors = generator.standard_normal((n_each, dim), np.float32)
        counts, spans, terms = np.array([n_each]), [pack_spans([()] * n_each)], [["text", f"w{doc % 500}"]]
        builder.add(Batch([f"new {doc}"], [""], ["text"], [{}], vectors, counts, spans, terms, [0]))
    built = builder.finish(quantizer)
    builder.close()
    assert built is not None
    manifest.next((built.record,), (built.quantizer,)).commit(directory)
    neighbors = generator.integers(0, n_rows, n_rows * 2 * M).astype(np.uint32)
    write_graph(directory, built.record.file, HnswGraph(M, 0, np.ones(n_rows, np.uint8), neighbors))
